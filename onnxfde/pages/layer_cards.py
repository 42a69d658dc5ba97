"""Each layer that changed: its frontier with the chosen point, and which neurons went where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxfde.numbers import FloatArray
from onnxfde.pages.markup import Markup, fill_in, joined_markup
from onnxfde.pages.neuron_maps import NeuronMap
from onnxfde.pages.pixels import signed_image
from onnxfde.pages.plots import WIDTH, Axes, Plot, PlotLine, svg_of, top_of
from onnxfde.pages.words import (
    REPORT_PAGE,
    field_of,
    measured_field,
    percent,
    units_word,
    whole_number,
)

TALLEST = 1.2
"""Errors above this are cut off: 1 is that of a constant output."""
ITSELF = 0.95
"""A layer that makes less than this share of its change has inherited the rest. Chosen."""
ABOVE = 1.02
"""How far above the estimate a change is explained: as far as it can be seen. Chosen."""
WHY_ABOVE = {
    "dense": "the line is estimated from the inputs that the layer was fitted to, this was "
    "measured on others",
    "channels": "the line is estimated in the original network, this was measured in the smaller "
    "one",
}
"""Why a layer does worse than the line, by its kind."""
ROW_HEIGHT = (3.2, 9.0)
"""The least and the largest height of a row in the picture of weights."""
PICTURE_HEIGHT = 240.0
HEAT_WIDTH, BAR_LEFT, SIMILARITY_WIDTH = 288, 308, WIDTH - 308
"""The width of the picture of weights, and where the bars beside it begin."""


def layer_cards(report: Mapping[str, Any], maps: Mapping[str, NeuronMap]) -> Markup:
    """The section with one card for each layer that changed."""
    numbered = list(enumerate(report["layers"]))
    cards = [
        card(report, number, maps.get(one["name"]))
        for number, one in numbered
        if one["neurons_before"] != one["neurons_after"]
    ]
    if not cards:
        return Markup("")
    text = (
        "A neuron (or channel) that does nearly the same as others can go, if the weights behind "
        "it are adjusted. Here is what each layer gave, and how much of what it passes on changed."
    )
    return fill_in(REPORT_PAGE, "layers", text=text, cards=joined_markup(cards))


def card(report: Mapping[str, Any], number: int, found: NeuronMap | None) -> Markup:
    """One layer."""
    layer, path = report["layers"][number], f"layers.{number}"
    before, after = (field_of(report, f"{path}.neurons_{when}") for when in ("before", "after"))
    change = measured_field(report, f"{path}.measured_error", percent)
    parts = [before, " → ", after, f" {units_word(layer)}. What the layer passes on changes by "]
    parts += [change, " of how much it varies", *own_words(report, number), "."]
    lossless = layer["neurons_lossless"]
    if lossless is not None and lossless < layer["neurons_before"]:
        exact = field_of(report, f"{path}.neurons_lossless")
        parts += [" With ", exact, " it would stay the same up to rounding."]
    remark = fill_in(REPORT_PAGE, "remark", text=layer["remark"]) if layer["remark"] else Markup("")
    figures = joined_markup([*frontier_figure(layer), *map_figure(layer, found)])
    text = joined_markup(parts)
    return fill_in(
        REPORT_PAGE, "layer", name=layer["name"], text=text, remark=remark, figures=figures
    )


def own_words(report: Mapping[str, Any], number: int) -> Iterator[Markup | str]:
    """What of its change a layer makes itself, where layers before it change its inputs."""
    layer = report["layers"][number]
    own, seen = layer["own_error"], layer["measured_error"]
    if own is not None and seen is not None and own < ITSELF * seen:
        yield " ("
        yield measured_field(report, f"layers.{number}.own_error", percent)
        yield " by itself; the rest comes from layers before it)"


def frontier_figure(layer: Mapping[str, Any]) -> Iterator[Markup]:
    """What fewer neurons cost, if that is known."""
    points = [(p["neurons"], p["error"]) for p in layer["frontier"] if p["error"] is not None]
    bounds = [
        (p["neurons"], p["lower_bound"])
        for p in layer["frontier"]
        if p["lower_bound"] is not None and p["neurons"] <= layer["inputs"]
    ]
    if len(points) < 2:
        return
    before, after, units = layer["neurons_before"], layer["neurons_after"], units_word(layer)
    if points[-1][0] < before:
        points.append((before, 0.0))
    error = own_change(layer)
    top = min(max(top_of(y for _, y in points), top_of([error])), TALLEST)
    axes = Axes((0.0, before), (0.0, top), f"{units} left", "change of what the layer passes on")
    lines = [PlotLine(points)]
    lines += [PlotLine(bounds, "bound", dots=False)] if len(bounds) > 1 else []
    told = f"From {before} {units} at no change to {after} at {percent(error)}, which was chosen"
    title = f"{layer['name']}: what fewer {units} cost"
    plot = Plot(title, told, axes, lines, (after, error))
    bound = fill_in(REPORT_PAGE, "bound_caption", units=units) if len(bounds) > 1 else Markup("")
    counts, errors = zip(*points, strict=True)
    said = chosen_words(layer, units, float(np.interp(after, counts, errors)))
    caption = fill_in(REPORT_PAGE, "frontier_caption", units=units, chosen=said, bound=bound)
    yield fill_in(REPORT_PAGE, "figure", picture=plot.drawn(), caption=caption)


def own_change(layer: Mapping[str, Any]) -> float:
    """By how much a layer itself changes what it passes on: measured, or else estimated."""
    own = layer["own_error"]
    return float((layer["error"] or 0.0) if own is None else own)


def chosen_words(layer: Mapping[str, Any], units: str, quick: float) -> str:
    """What is said of the point that was chosen; `quick` is the estimate of the line there."""
    error = own_change(layer)
    how = "estimated too" if layer["own_error"] is None else "measured"
    count = whole_number(layer["neurons_after"])
    said = f"What was chosen: {count} {units}, {percent(error)} ({how})."
    if error < quick:
        return f"{said} It lies below the line: it does better than the quick method's estimate."
    if error > ABOVE * quick and layer["own_error"] is not None:
        return f"{said} It lies above the line: {WHY_ABOVE[layer['kind']]}."
    return said


def map_figure(layer: Mapping[str, Any], found: NeuronMap | None) -> Iterator[Markup]:
    """Which neurons went where, if that is known."""
    if found is None or not len(found.groups):
        return
    caption = fill_in(
        REPORT_PAGE,
        "map_caption",
        units=units_word(layer),
        left=whole_number(layer["neurons_after"]),
        kept=fill_in(REPORT_PAGE, "no_kept_caption" if found.kept is None else "kept_caption"),
        shown=" ".join(shown_words(found)),
    )
    yield fill_in(REPORT_PAGE, "figure", picture=heat_map(layer, found), caption=caption)


def shown_words(found: NeuronMap) -> Iterator[str]:
    """What of a layer does not fit in the picture."""
    rows, columns = found.weights.shape
    if rows < found.neurons:
        yield f"Shown: the largest groups, {rows} of {whole_number(found.neurons)} rows."
    if columns < found.inputs:
        every = whole_number(found.inputs)
        yield f"Of {every} inputs, the {columns} with the largest weights are shown."


def heat_map(layer: Mapping[str, Any], found: NeuronMap) -> Markup:
    """Incoming weights as coloured rows in groups, and a bar for each row."""
    lines = list(heat_lines(found))
    step = min(max(PICTURE_HEIGHT / len(lines), ROW_HEIGHT[0]), ROW_HEIGHT[1])
    height = step * len(lines)
    image = signed_image(np.stack([line.weights for line in lines]))
    size = {"width": HEAT_WIDTH, "height": f"{height:.1f}"}
    parts = [fill_in("plots.html", "heat", image=Markup(image), **size)]
    for number, line in enumerate(lines):
        if line.kind is not None:
            place = {"y": f"{(number + 0.12) * step:.1f}", "height": f"{0.76 * step:.2f}"}
            x, width = (
                (0, 8.0) if line.kind == "kept" else (BAR_LEFT, SIMILARITY_WIDTH * line.similarity)
            )
            place |= {"x": str(x), "width": f"{width:.1f}"}
            parts.append(fill_in("plots.html", "similarity", kind=line.kind, **place))
    words = {"left": "weights of inputs", "right": "how alike"}
    parts.append(fill_in("plots.html", "heat_titles", y=f"{height + 14:.1f}", **words))
    mean = float(np.mean(found.similarity))
    told = (
        f"{len(found.groups)} of {found.neurons} {units_word(layer)} in "
        f"{len(set(found.groups.tolist()))} groups; on average each is {mean:.2f} correlated with "
        "the one that is left"
    )
    title = f"{layer['name']}: which {units_word(layer)} resemble each other"
    return svg_of(title, told, joined_markup(parts), height + 20)


@dataclass(frozen=True, eq=False)
class HeatLine:
    """One line of the picture: a neuron of the original, one that is left, or a gap."""

    weights: FloatArray
    kind: str | None = None
    similarity: float = 0.0


def heat_lines(found: NeuronMap) -> Iterator[HeatLine]:
    """The lines from top to bottom."""
    for row, group in enumerate(found.groups):
        if row == 0 or group != found.groups[row - 1]:
            if row:
                yield HeatLine(np.zeros(found.weights.shape[1]))
            if found.kept is not None:
                yield HeatLine(found.kept[row], "kept")
        near = min(max(float(found.similarity[row]), 0.0), 1.0)
        yield HeatLine(found.weights[row], "now", near)
