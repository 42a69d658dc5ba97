"""The inputs of a layer: their mean and covariance, and sample rows.

If the layer reads an input of the model of which only the range is known, the inputs are uniform in
that range and their moments have a closed form. Otherwise they are recorded while the network runs
on the data or on random inputs, with the layers before this one already merged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from onnxfde.errors import RuntimeUnavailable
from onnxfde.graph.match import Match, size_of
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import op
from onnxfde.neurons.held_out import FEWEST_ROWS, Evidence
from onnxfde.neurons.kernels import Metric
from onnxfde.numbers import FloatArray
from onnxfde.row_split import Mask
from onnxfde.running.random_inputs import latin_hypercube
from onnxfde.running.recording import Recording

RESHAPES = {"Identity", "Dropout", "Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
"""Operators that move values but do not change them."""
CHECKED_ROWS = 512
"""Inputs of a layer on which "equal up to rounding" is decided. Chosen; not tuned."""
MOST_RECORDED = 2**25
"""Most numbers recorded in one run for all layers together: 128 MB of float32. Chosen; not tuned.
Layers that do not fit are recorded when their turn comes."""


@dataclass(frozen=True, eq=False)
class LayerInputs:
    """The metric of a layer, inputs to check it on, and a remark if they are a guess."""

    metric: Metric
    samples: FloatArray
    remark: str | None = None
    rows: FloatArray | None = None
    """The inputs that were recorded; None if none were."""
    rows_per_sample: int = 1
    chosen_by: Mask | None = None
    """Which samples of the rows are chosen by."""

    @property
    def to_choose_by(self) -> FloatArray | None:
        """The rows of those samples."""
        if self.rows is None or self.chosen_by is None:
            return None
        return self.rows[np.repeat(self.chosen_by, self.rows_per_sample)]


def record_layers(recording: Recording, matches: Iterable[Match], with_results: bool) -> None:
    """Record what all layers read, and also what they compute if wanted, in one run.

    Fewer samples are used if a single layer reads too much on all of them.
    """
    names: list[str] = []
    measured = [match for match in matches if not is_closed_form(recording, match)]
    widths = [
        (match.layer.inputs + with_results * match.layer.outputs)
        * size_of(recording.graph, match).positions
        for match in measured
    ]
    fitting = MOST_RECORDED // max([1, *widths])
    recording.samples = recording.samples.some(max(fitting, 1))
    capacity = MOST_RECORDED
    for match, width in zip(measured, widths, strict=True):
        capacity -= width * recording.samples.rows
        if capacity < 0:
            break
        names += [match.source, match.result] if with_results else [match.source]
    recording.record(names)


def is_closed_form(recording: Recording, match: Match) -> bool:
    """Whether a layer reads an input of the model of which only the range is known."""
    inputs = {value.name for value in recording.graph.inputs}
    return recording.source.data is None and origin(recording.graph, match.source) in inputs


def layer_inputs(recording: Recording, match: Match) -> LayerInputs:
    """Describe the inputs of one layer."""
    width, limits = match.layer.inputs, recording.source.limits
    if is_closed_form(recording, match):
        box = latin_hypercube(CHECKED_ROWS, width, limits)
        return LayerInputs(Metric.box(width, *limits), box)
    try:
        found = recording.rows(match.source, match.incoming.layout, width)
    except RuntimeUnavailable as reason:
        return unknown_inputs(width, f"its inputs could not be measured ({reason})")
    rows, per_sample = found.values, found.each
    if not np.isfinite(rows).all():
        return unknown_inputs(width, "its inputs overflow on these samples")
    step = max(1, len(rows) // CHECKED_ROWS)
    remark = remark_on_rows(rows)
    metric = Metric.measured(rows if not recording.samples.spared else found.fitted)
    samples = rows[::step].copy()
    return LayerInputs(metric, samples, remark, rows, per_sample, found.chosen_by)


def observed_outputs(
    inputs: LayerInputs, now: Match, recording: Recording, found: Match, original: Recording
) -> Evidence | None:
    """The recorded inputs, each with the output that the original network has there.

    `now` is the layer in the network of `recording`, `found` the same layer in the `original` one.
    """
    if inputs.rows is None:
        return None
    outputs = now.layer(inputs.rows)
    if now.source in recording.edited:
        try:
            outputs = original.rows(found.result, found.outgoing.layout, len(outputs.T)).values
        except RuntimeUnavailable:
            return None
    if len(outputs) != len(inputs.rows):
        return None
    return Evidence(inputs.rows, outputs, inputs.rows_per_sample, inputs.chosen_by)


def unknown_inputs(width: int, reason: str) -> LayerInputs:
    """Standard normal inputs, because the real ones are not known."""
    box = latin_hypercube(CHECKED_ROWS, width, (-1.0, 1.0))
    return LayerInputs(Metric.plain(width), box, f"{reason}: N(0, I) is assumed")


def remark_on_rows(rows: FloatArray) -> str | None:
    """A warning if a mean and covariance were measured on too few rows, or on equal ones."""
    count, inputs = rows.shape
    if count > 1 and not np.ptp(rows, axis=0).any():
        return (
            f"its inputs are the same in all {count} rows, and the error on other rows is not "
            "known: give rows that differ"
        )
    enough = max(FEWEST_ROWS, 2 * inputs)
    if count >= enough:
        return None
    return (
        f"its {inputs} inputs were measured on {count} rows only, and the error on other rows may "
        f"be much larger: give more rows ({enough} to measure, beside those that are kept)"
    )


def origin(graph: Graph, value: str) -> str:
    """The value before all nodes that only reshape it."""
    node = graph.producers.get(value)
    while node is not None and op(node) in RESHAPES:
        value = node.input[0]
        node = graph.producers.get(value)
    return value
