"""What `inspect` prints: one row per layer and one for its bounds, then remarks and refusals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Console

from onnxfde.command.tables import UNKNOWN, Grid, show_first_that_fits
from onnxfde.command.terminal import console, print_line
from onnxfde.graph.match import Refusal
from onnxfde.inspection import Inspection, LayerView
from onnxfde.passes.result import LayerChange

SIZES = (("activation", "shape", "parameters"), ("activation", "shape"), ("shape",))
"""The columns beside a layer's name; the first that fit the terminal are shown."""
MOST_NAMES = 4
"""Layers that a remark names; of more it says how many there are. Chosen: about a line."""
AT_LEAST = "  at least"
"""The first cell of the row with a layer's lower bounds."""


def show_inspection(found: Inspection, seconds: Mapping[str, float]) -> None:
    """Print the layers, how many neurons merging would leave, what was refused, and times."""
    out = console()
    if found.layers:
        show_first_that_fits(
            out,
            *([inspection_grid(found.layers, sizes)] for sizes in SIZES),
        )
        bounded = any(any(layer.fewest_at.values()) for layer in found.layers)
        limit = ", but no method can go below 'at least'" if bounded else ""
        print_line(
            out,
            "Neurons left by merging, by ε (the allowed change). optimize usually leaves fewer"
            f"{limit}.",
        )
    show_remarks(out, found.layers)
    show_refusals(out, found.refused)
    if found.layers and found.other_activations:
        others = ", ".join(f"{n} × {op}" for op, n in found.other_activations.items())
        print_line(out, f"left alone  activations not between two affine maps: {others}")
    for fold in found.folds:
        size = f"{fold.parameters_before:,} → {fold.parameters_after:,} parameters"
        print_line(out, f"can fold    {fold.first} into {fold.second}: {size}, without loss")
    if found.nothing:
        print_line(out, f"No layer found: {found.nothing}.")
    show_times(out, seconds)


def inspection_grid(layers: tuple[LayerView, ...], sizes: tuple[str, ...]) -> Grid:
    """Two rows per layer, neurons left and their lower bounds, with one column per ε."""
    shown = [eps for eps in layers[0].neurons_at if eps > 0]
    rows = []
    for layer in layers:
        cells = {
            "activation": layer.activation,
            "shape": f"{layer.inputs}-{layer.neurons}-{layer.outputs}",
            "parameters": f"{layer.parameters:,}",
        }
        size = (cells[column] for column in sizes)
        left = (f"{layer.neurons_at[eps]:,}" for eps in shown)
        rows.append((layer.name, *size, f"{layer.lossless:,}", *left))
        fewest = [layer.fewest_at.get(eps, 0) for eps in (0.0, *shown)]
        if any(fewest):
            bounds = (f"{count:,}" if count else UNKNOWN for count in fewest)
            rows.append((AT_LEAST, *("" for _ in sizes), *bounds))
    return Grid(("layer", *sizes, "no loss", *(f"ε {eps:g}" for eps in shown)), [rows])


def show_remarks(out: Console, layers: Iterable[LayerChange | LayerView]) -> None:
    """Print every remark once, with the names of the layers it is about."""
    found: dict[str, list[str]] = {}
    for layer in layers:
        if layer.remark:
            found.setdefault(layer.remark, []).append(layer.name)
    for remark, names in found.items():
        about = ", ".join(names) if len(names) <= MOST_NAMES else f"{len(names)} layers"
        print_line(out, f"{about}: {remark}")


def show_refusals(out: Console, refused: tuple[Refusal, ...]) -> None:
    """Print every refusal with its reason."""
    for refusal in refused:
        print_line(out, f"left alone  {refusal.node}: {refusal.reason}")


def show_times(out: Console, seconds: Mapping[str, float]) -> None:
    """Print how long each stage took, if anything is known about that."""
    if seconds:
        print_line(out, "time: " + ", ".join(f"{stage} {s:.3f} s" for stage, s in seconds.items()))
