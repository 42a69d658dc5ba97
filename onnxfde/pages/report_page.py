"""The page of one run of `optimize`: report and pictures in, one file of HTML out.

Every number on it is a field of the report, which stands at the end of the page as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from onnxfde.errors import DataError
from onnxfde.graph.input_specs import input_specs
from onnxfde.graph.model import Graph
from onnxfde.optimization import Result
from onnxfde.pages.layer_cards import layer_cards
from onnxfde.pages.markup import Markup, fill_in, joined_markup, whole_page
from onnxfde.pages.neuron_maps import NeuronMap, neuron_maps
from onnxfde.pages.plots import Axes, histogram, top_of
from onnxfde.pages.spending_section import spending_section
from onnxfde.pages.words import (
    REPORT_PAGE,
    UNKNOWN_NUMBER,
    asked,
    came_out,
    field_of,
    left_percent,
    measured_field,
    one_decimal,
    percent,
    range_words,
    rows_word,
    score_format,
    score_name,
    small,
    units_word,
    whole_number,
)
from onnxfde.report import Report, finite, large_change, strict_json

NO_PROOF = "No proof was asked for, or it would have taken long: --certify asks for one."
NO_PROOF_IN_8_BITS = "Nothing: there is no proof for models in 8 bits."
PROVEN = (
    "For no input in the range below do the two models differ by more than is proven here, if they "
    "are computed exactly. Computers round, which may add about "
)
LITTLE_USE = (
    "For no input in the range below do the two models differ by more than is proven here; but "
    "that is more than the outputs vary by themselves, so it is of little use."
)
SOME_OF_LITTLE_USE = " Where it is more than the output varies by itself, it is of little use."
CHANGED_A_LOT = "The outputs changed a lot, by more than {} of how much they vary. "
NOT_SCORED = "Whether the answers are still right was not measured: the data has no labels."
SCORED = "See above what that does to the {}."
DATA_BOX = "range of the data"
DATA_BOX_WORDS = "range of the data (between the smallest and the largest value of each number)"
SETTING_WORDS = {
    "verdict_rows": "inputs kept aside for the check",
    "input_range": "range of the inputs",
    "max_params": "limit on parameters",
    "max_macs": "limit on multiply-adds",
    "max_bytes": "limit on bytes",
    "max_error": "limit on the change of the outputs",
    "max_drop": "limit on points of accuracy lost (or percent of squared error)",
    "max_latency": "limit on the time of one run",
    "max_certified_error": "limit on the change for all inputs",
    "neurons": "limit on neurons of a layer",
    "keep": "share of the neurons of a layer that may stay",
    "int8": "stored in 8 bits",
    "skip": "layers that were to be left alone",
    "layers": "layers that were to be changed",
    "align": "channels in multiples of",
    "seed": "seed of random numbers",
    "eps": "allowed change of a layer (ε)",
    "quotient": "how layers get fewer neurons",
}
"""What settings are called, where their names alone do not say it."""
SHARE_SETTINGS = ("eps", "keep", "max_error", "max_params", "max_macs", "max_bytes")
"""Settings that are shares, unless they are whole numbers."""


@dataclass(frozen=True, eq=False)
class ReportPage:
    """What a page shows besides the report."""

    name: str
    """What the model is called."""
    command: str
    """The command that makes the same again."""
    inputs: tuple[tuple[str, int], ...] = ()
    """The inputs of the network, and how many numbers each has."""
    outputs: tuple[str, ...] = ()
    maps: Mapping[str, NeuronMap] = field(default_factory=dict)

    @classmethod
    def of(cls, result: Result, name: str, command: str) -> ReportPage:
        """What is to be seen of a result; both models run once more."""
        original = result.source.graph
        after = Graph(result.kept, original.folder)
        maps = neuron_maps(original, after, result.report.layers, result.samples)
        inputs = tuple(inputs_shown(original))
        outputs = tuple(value.name for value in original.model.graph.output)
        return cls(name, command, inputs, outputs, maps)

    def html(self, report: Report) -> str:
        """The page."""
        return self.of_fields(finite(report.to_dict()))

    def of_fields(self, report: dict[str, Any]) -> str:
        """The page of a report as `--json` writes it."""
        body = fill_in(
            REPORT_PAGE,
            "report",
            version=report["version"],
            name=self.name,
            asked=asked(report),
            outcome=came_out(report),
            tiles=tile_list(report),
            sizes=size_rows(report),
            remarks=remark_lines(report),
            network=joined_markup(self.network(report)),
            spending=spending_section(report),
            layers=layer_cards(report, self.maps),
            histogram=changes_section(report),
            certificate=certificate_section(report),
            refused=refused_section(report),
            command=self.command,
            facts=joined_markup(facts(report)),
            json=strict_json(report),
        )
        return whole_page(f"{self.name} – onnxfde", body)

    def network(self, report: Mapping[str, Any]) -> Iterator[Markup]:
        """The layers as bars, from inputs to outputs."""
        widest = max((one["neurons_before"] for one in report["layers"]), default=1)
        for name, size in self.inputs:
            text = f"input, {whole_number(size)} numbers" if size else "input"
            yield fill_in(REPORT_PAGE, "stage", name=name, text=text, bar=Markup(""))
        for one in report["layers"]:
            yield fill_in(
                REPORT_PAGE, "stage", name=one["name"], text=stage_text(one), bar=bar(one, widest)
            )
        for name in self.outputs:
            text = "" if name == "output" else "output"
            yield fill_in(REPORT_PAGE, "stage", name=name, text=text, bar=Markup(""))


def inputs_shown(graph: Graph) -> Iterator[tuple[str, int]]:
    """The inputs of a network, and how many numbers each has; 0 if that is not known."""
    try:
        yield from [(str(spec), size_of_dims(spec.dims)) for spec in input_specs(graph)]
    except DataError:
        yield from [(value.name, 0) for value in graph.inputs]


def size_of_dims(dims: tuple[Any, ...]) -> int:
    """How many numbers one sample of an input has; 0 if that is not known."""
    size = 1
    for length in dims[1:]:
        size *= length if isinstance(length, int) else 0
    return size


def stage_text(layer: Mapping[str, Any]) -> str:
    """How wide a layer was and is."""
    before, after, units = layer["neurons_before"], layer["neurons_after"], units_word(layer)
    acts = f", activation {layer['activation']}" if layer["activation"] else ""
    if before == after:
        return f"{whole_number(before)} {units}, unchanged{acts}"
    return f"{whole_number(before)} → {whole_number(after)} {units}{acts}"


def bar(layer: Mapping[str, Any], widest: int) -> Markup:
    """The width of a layer before and after."""
    was, now = (max(100 * layer[f"neurons_{when}"] / widest, 0.6) for when in ("before", "after"))
    places = {"was_x": 50 - was / 2, "was": was, "now_x": 50 - now / 2, "now": now}
    shown = {key: f"{value:.2f}" for key, value in places.items()}
    return fill_in("plots.html", "bars", text=f"{layer['name']}: {stage_text(layer)}", **shown)


def tile_list(report: Mapping[str, Any]) -> Markup:
    """The figures that matter most."""
    found = report["verification"] or {}
    shown = [
        (field_of(report, "grp_percent", one_decimal), "of the parameters are left"),
        (left_percent(report["bytes"]), "of the file's bytes are left"),
    ]
    if report["multiply_adds"]:
        shown.append(
            (left_percent(report["multiply_adds"]), "of the multiply-adds of one run are left")
        )
    if found.get("relative_l2") is not None:
        change = field_of(report, "verification.relative_l2", percent)
        ends = range_words(found["relative_l2_interval"], percent)
        shown.append((change, f"change of the outputs{ends}, counted as said below"))
    if found.get("metric_after") is not None:
        after = field_of(report, "verification.metric_after", score_format(found))
        before = score_format(found)(found["metric_before"])
        ends = range_words(found["metric_after_interval"], score_format(found))
        rows = whole_number(found["samples"])
        shown.append((after, f"{score_name(found)}{ends} on {rows} inputs, was {before}"))
    parts = [fill_in(REPORT_PAGE, "tile", value=value, text=text) for value, text in shown]
    return fill_in(REPORT_PAGE, "tiles", tiles=joined_markup(parts))


def size_rows(report: Mapping[str, Any]) -> Markup:
    """The rows of the table of sizes."""
    names = {"parameters": "parameters (weights and biases)", "bytes": "bytes of the file"}
    if report["multiply_adds"]:
        names["multiply_adds"] = "multiply-adds of one run (multiplications, each with an addition)"
    rows = [
        fill_in(
            REPORT_PAGE,
            "size",
            name=name,
            before=field_of(report, f"{key}.before"),
            after=field_of(report, f"{key}.after"),
            left=left_percent(report[key]),
        )
        for key, name in names.items()
    ]
    found = report["verification"]
    if found and found["metric_before"] is not None:
        shown = score_format(found)
        before, after = (
            measured_field(report, f"verification.metric_{when}", shown)
            for when in ("before", "after")
        )
        name = score_name(found)
        rows.append(fill_in(REPORT_PAGE, "size", name=name, before=before, after=after, left=""))
    return joined_markup(rows)


def remark_lines(report: Mapping[str, Any]) -> Markup:
    """What to know about the figures."""
    said = []
    if report["assumed"]:
        said.append(f"No real inputs were given. It was assumed: {report['assumed']}.")
    found = report["verification"]
    said += large_change_words(report)
    if found and found["metric_remark"]:
        said.append(found["metric_remark"])
    if report["int8"] and report["int8"]["unmerged"]:
        said.append(f"Only rounded to 8 bits: {report['int8']['unmerged']}.")
    return joined_markup(fill_in(REPORT_PAGE, "remark", text=text) for text in said)


def large_change_words(report: Mapping[str, Any]) -> Iterator[str]:
    """A warning if the outputs changed more than they should."""
    found, goal = report["verification"] or {}, report["goal"] or {}
    large = large_change((layer["eps"] for layer in report["layers"]), goal.get("kind"))
    if (found.get("relative_l2") or 0.0) > large:
        scored = SCORED.format(score_name(found)) if found["metric"] else NOT_SCORED
        yield CHANGED_A_LOT.format(percent(large)) + scored


def changes_section(report: Mapping[str, Any]) -> Markup:
    """The histogram of the change of single rows."""
    found = report["verification"]
    bars = found and found["row_changes"]
    if not bars:
        return Markup("")
    edges, counts = bars["edges"], bars["counts"]
    axes = Axes(
        (0.0, edges[-1]),
        (0.0, top_of(counts)),
        "change of the outputs for one input",
        "number of inputs",
        percent_x=True,
        percent_y=False,
    )
    told = f"The median is {percent(bars['median'])}, the largest change {percent(edges[-1])}"
    picture = histogram("How much the outputs for single inputs change", told, axes, edges, counts)
    text = joined_markup(changes_words(report))
    return fill_in(REPORT_PAGE, "histogram", text=text, picture=picture)


def changes_words(report: Mapping[str, Any]) -> Iterator[Markup | str]:
    """What the histogram shows, in sentences."""
    found, path = report["verification"], "verification.row_changes"
    largest = f"{path}.edges.{len(found['row_changes']['edges']) - 1}"
    yield "Both models ran on "
    yield field_of(report, "verification.samples")
    yield f" {rows_word(found)}. The height of a bar is the number of inputs whose outputs changed "
    yield "that much. Half of them changed by at most "
    yield field_of(report, f"{path}.median", percent)
    yield " (the median); the largest change is "
    yield field_of(report, largest, percent)
    yield ". All inputs taken together (as a root mean square) it is the "
    yield measured_field(report, "verification.relative_l2", percent)
    yield " at the top of the page; single ones may lie above that, and above a limit on it."


def certificate_section(report: Mapping[str, Any]) -> Markup:
    """What is proven for all inputs."""
    found = report["certificate"]
    if not found:
        text = NO_PROOF_IN_8_BITS if report["int8"] else NO_PROOF
        return fill_in(REPORT_PAGE, "certificate", text=text, table=Markup(""))
    if found["unavailable"]:
        text = f"Nothing: {found['unavailable']}."
        return fill_in(REPORT_PAGE, "certificate", text=text, table=Markup(""))
    rows = []
    for number, one in enumerate(found["outputs"]):
        path = f"certificate.outputs.{number}"
        rows.append(
            fill_in(
                REPORT_PAGE,
                "output_bound",
                name=one["name"],
                limit=field_of(report, f"{path}.bound", small),
                seen=field_of(report, f"{path}.measured_max", small),
                spread=field_of(report, f"{path}.spread", small),
            )
        )
    box = {DATA_BOX: DATA_BOX_WORDS}.get(found["box"], found["box"])
    caption = (
        f"For every input in the {box}, not only for those that were tried. In the unit of the "
        "output."
    )
    table = fill_in(REPORT_PAGE, "bounds", caption=caption, rows=joined_markup(rows))
    loose = [one for one in found["outputs"] if not one["useful"]]
    rounding = field_of(report, "certificate.rounding", small)
    words = joined_markup([PROVEN, rounding, ".", SOME_OF_LITTLE_USE if loose else ""])
    useless = len(loose) == len(found["outputs"])
    return fill_in(REPORT_PAGE, "certificate", text=LITTLE_USE if useless else words, table=table)


def refused_section(report: Mapping[str, Any]) -> Markup:
    """What was left alone, if anything was."""
    refused = report["refused"]
    if not refused:
        return Markup("")
    rows = [
        fill_in(REPORT_PAGE, "refusal", name=one["node"], reason=one["reason"]) for one in refused
    ]
    places = "1 place" if len(rows) == 1 else f"{len(rows)} places"
    return fill_in(REPORT_PAGE, "refused", text=f"{places}, and why", rows=joined_markup(rows))


def facts(report: Mapping[str, Any]) -> Iterator[Markup]:
    """What the result depends on."""
    settings = report["settings"]
    hashes = {
        "model given": report["input_sha256"],
        "data": settings.get("data"),
        "model written": report["output_sha256"],
    }
    for name, digest in hashes.items():
        value = fill_in(REPORT_PAGE, "hash", text=digest) if digest else UNKNOWN_NUMBER
        yield fill_in(REPORT_PAGE, "fact", name=name, value=value)
    found = report["verification"]
    if found and found["source"]:
        yield fill_in(REPORT_PAGE, "fact", name="compared on", value=found["source"])
    known = {"data"} if settings.get("data") is None else {"data", "input_range"}
    for name, value in settings.items():
        if name not in known and value not in (None, [], (), {}) and not is_default(name, value):
            words = SETTING_WORDS.get(name, name.replace("_", " "))
            yield fill_in(REPORT_PAGE, "fact", name=words, value=setting_text(name, value))
    seconds = sum(report["seconds"].values())
    yield fill_in(REPORT_PAGE, "fact", name="seconds it took", value=f"{seconds:.1f}")


def setting_text(name: str, value: Any) -> str:
    """A setting as it is shown.

    >>> setting_text("max_params", 900), setting_text("input_range", [-1.0, 1.0])
    ('900', '-1 to 1')
    """
    if name in SHARE_SETTINGS and isinstance(value, float):
        return percent(value)
    if name == "input_range":
        return " to ".join(f"{limit:g}" for limit in value)
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def is_default(name: str, value: Any) -> bool:
    """Whether a setting is what it is if nobody says anything."""
    from onnxfde.options import MergeOptions

    return bool(getattr(MergeOptions, name, None) == value)
