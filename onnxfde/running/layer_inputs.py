"""What a layer's inputs look like: their mean and covariance, some of them, and what follows.

Closed form where the layer reads a graph input directly and only a range is known; otherwise the
real inputs of the layer, recorded from the data or from random inputs, in the network as it is now
(with the layers before it already merged).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from onnxfde.errors import RuntimeUnavailable
from onnxfde.graph.match import Match
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import op
from onnxfde.neurons.held_out import FEWEST_ROWS, Evidence
from onnxfde.neurons.kernels import Metric
from onnxfde.numbers import FloatArray
from onnxfde.running.recording import Recording
from onnxfde.running.samples import latin_hypercube

RESHAPES = {"Identity", "Dropout", "Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
CHECKED_ROWS = 512
"""Inputs of a layer on which "equal up to rounding" is decided; chosen, not tuned."""
MOST_RECORDED = 2**27
"""Numbers that are recorded in one run for all layers together, half a gigabyte of float32; what is
left over is recorded when its layer's turn comes."""


@dataclass(frozen=True, eq=False)
class LayerInputs:
    """A metric for a layer, inputs to check it on, and a remark where it is a guess."""

    metric: Metric
    samples: FloatArray
    remark: str | None = None
    rows: FloatArray | None = None
    """All inputs that were measured."""


def record_layers(recording: Recording, matches: Iterable[Match], with_results: bool) -> None:
    """Record what all layers read, and make if wanted, in one run of the network."""
    names: list[str] = []
    room = MOST_RECORDED
    for match in matches:
        if is_closed_form(recording, match):
            continue
        width = match.layer.inputs + with_results * match.layer.outputs
        room -= width * recording.samples.rows
        if room < 0:
            break
        names += [match.source, match.result] if with_results else [match.source]
    recording.record(names)


def is_closed_form(recording: Recording, match: Match) -> bool:
    """Whether a layer reads an input of which only the range is known."""
    inputs = {value.name for value in recording.graph.inputs}
    return recording.source.data is None and origin(recording.graph, match.source) in inputs


def layer_inputs(recording: Recording, match: Match) -> LayerInputs:
    """Describe the inputs of one layer."""
    width, limits = match.layer.inputs, recording.source.limits
    if is_closed_form(recording, match):
        box = latin_hypercube(CHECKED_ROWS, width, limits)
        return LayerInputs(Metric.box(width, *limits), box)
    try:
        rows = recording.rows(match.source, match.incoming.layout, width)
    except RuntimeUnavailable as reason:
        return unknown_inputs(width, f"its inputs could not be measured ({reason})")
    if not np.isfinite(rows).all():
        return unknown_inputs(width, "its inputs overflow on the inputs given")
    step = max(1, len(rows) // CHECKED_ROWS)
    return LayerInputs(Metric.measured(rows), rows[::step], too_few(len(rows), width), rows)


def evidence_for(
    inputs: LayerInputs, now: Match, recording: Recording, found: Match, original: Recording
) -> Evidence | None:
    """The inputs that were measured with what the original network makes of them.

    `now` is the layer as it is in `recording`, `found` the same layer in the `original` network.
    """
    if inputs.rows is None:
        return None
    outputs = now.layer(inputs.rows)
    if now.source in recording.stale:
        try:
            outputs = original.rows(found.result, found.outgoing.layout, len(outputs.T))
        except RuntimeUnavailable:
            return None
    if len(outputs) != len(inputs.rows):
        return None
    samples = recording.samples.fed
    together = len(outputs) // samples if samples and len(outputs) % samples == 0 else 1
    evidence = Evidence(inputs.rows, outputs, together)
    return evidence if evidence.enough else None


def unknown_inputs(width: int, reason: str) -> LayerInputs:
    """Plain coefficients, for want of anything better."""
    box = latin_hypercube(CHECKED_ROWS, width, (-1.0, 1.0))
    return LayerInputs(Metric.plain(width), box, f"{reason}: N(0, I) is assumed")


def too_few(rows: int, inputs: int) -> str | None:
    """What to say of a mean and covariance that were measured on too few rows."""
    enough = max(FEWEST_ROWS, 2 * inputs)
    if rows >= enough:
        return None
    return (
        f"its {inputs} inputs were measured on {rows} rows only, and on others the error may be "
        f"much larger: give at least {enough}"
    )


def origin(graph: Graph, value: str) -> str:
    """Follow a value back through nodes that only reshape it."""
    node = graph.producers.get(value)
    while node is not None and op(node) in RESHAPES:
        value = node.input[0]
        node = graph.producers.get(value)
    return value
