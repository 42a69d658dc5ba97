"""What a layer's inputs look like: their mean and covariance, and some of them.

Closed form where the layer reads a graph input directly and only a range is known; otherwise the
real inputs of the layer, from the data or from a Latin hypercube, pushed through the model as it is
now (with the layers before it already merged).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from onnxfde.errors import DataError, RuntimeUnavailable
from onnxfde.graph.affine import Layout
from onnxfde.graph.input_specs import input_specs
from onnxfde.graph.match import Match
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import names_used, op
from onnxfde.graph.protos import ModelProto, ValueInfoProto
from onnxfde.neurons.held_out import FEWEST_ROWS, Evidence
from onnxfde.neurons.kernels import Metric
from onnxfde.numbers import FloatArray
from onnxfde.running.samples import SAMPLES, Range, Samples, latin_hypercube, random_samples

RESHAPES = {"Identity", "Dropout", "Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
CHECKED_ROWS = 512
DATA_ROWS = 16_384

Tick = Callable[[], None]
Box = dict[str, tuple[FloatArray | float, FloatArray | float]]


@dataclass(frozen=True, eq=False)
class LayerInputs:
    """A metric for a layer, inputs to check it on, and a remark where it is a guess."""

    metric: Metric
    samples: FloatArray
    remark: str | None = None
    rows: FloatArray | None = None
    """All inputs that were measured."""


@dataclass(frozen=True, eq=False)
class Probe:
    """Where a model's inputs come from: data, or a range."""

    limits: Range = (-1.0, 1.0)
    data: Samples | None = None
    box_given: bool = False
    """Whether the range is what a certificate is about although there is data."""

    def layer_inputs(self, graph: Graph, match: Match, tick: Tick = lambda: None) -> LayerInputs:
        """Describe the inputs of one layer."""
        width = match.layer.inputs
        if self.data is None and origin(graph, match.source) in {v.name for v in graph.inputs}:
            box = latin_hypercube(CHECKED_ROWS, width, self.limits)
            return LayerInputs(Metric.box(width, *self.limits), box)
        try:
            rows = self.measured(graph, match.source, match.incoming.layout, width, tick)
        except (RuntimeUnavailable, DataError) as reason:
            return self.unknown(width, f"its inputs could not be measured ({reason})")
        if not np.isfinite(rows).all():
            return self.unknown(width, "its inputs overflow on the inputs given")
        step = max(1, len(rows) // CHECKED_ROWS)
        return LayerInputs(Metric.measured(rows), rows[::step], few(len(rows), width), rows)

    def evidence(
        self, inputs: LayerInputs, now: Match, graph: Graph, before: Match, merged: bool, tick: Tick
    ) -> Evidence | None:
        """The inputs that were measured with what the original network, `graph`, makes of them.

        `before` is the layer there, which sees other inputs than it does `now` if others were
        `merged` before it.
        """
        if inputs.rows is None:
            return None
        outputs = now.layer(inputs.rows)
        try:
            if merged:
                outputs = self.measured(
                    graph, before.result, before.outgoing.layout, len(outputs.T), tick
                )
        except (RuntimeUnavailable, DataError):
            return None
        if len(outputs) != len(inputs.rows):
            return None
        samples = self.data.rows if self.data else 0
        together = len(outputs) // samples if samples and len(outputs) % samples == 0 else 1
        found = Evidence(inputs.rows, outputs, together)
        return found if found.enough else None

    def box(self, graph: Graph) -> Box:
        """The range of every input: that of the data, element by element, or the common one."""
        if self.data is None or self.box_given:
            return {value.name: self.limits for value in graph.inputs}
        arrays = self.data.arrays
        rowwise = {s.name: arrays[s.name].ndim > len(s.dims) for s in self.data.specs}
        return {
            name: (
                arrays[name].min(axis=0, keepdims=not single).astype(np.float64),
                arrays[name].max(axis=0, keepdims=not single).astype(np.float64),
            )
            for name, single in rowwise.items()
        }

    def unknown(self, width: int, reason: str) -> LayerInputs:
        """Plain coefficients, for want of anything better."""
        box = latin_hypercube(CHECKED_ROWS, width, (-1.0, 1.0))
        return LayerInputs(Metric.plain(width), box, f"{reason}: N(0, I) is assumed")

    def measured(
        self, graph: Graph, value: str, layout: Layout, width: int, tick: Tick
    ) -> FloatArray:
        """A value with `width` features as rows."""
        data = self.data
        if data is None:
            data = random_samples(input_specs(graph), self.limits, SAMPLES)
        data = data.some(DATA_ROWS)
        if value in data.arrays:
            runs = [feeds[value] for feeds in data.feeds()]
        else:
            from onnxfde.running.runtime import load, run_each

            runner = load(truncated(graph.model, value), graph.folder)
            runs = [outputs[0] for outputs in run_each(runner, data, tick)]
        if layout == "columns":
            runs = [np.swapaxes(a, -1, -2) if a.ndim > 1 else a for a in runs]
        rows = [a.reshape(-1, width) for a in runs]
        return np.concatenate(rows).astype(np.float64)


def few(rows: int, inputs: int) -> str | None:
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


def truncated(model: ModelProto, value: str) -> ModelProto:
    """The part of a model that makes one value, as a model with that output."""
    graph = Graph(model)
    needed, pending = set(), [value]
    while pending:
        name = pending.pop()
        if name not in needed and name in graph.producers:
            pending.extend(names_used(graph.producers[name]))
        needed.add(name)
    part = ModelProto(
        ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions
    )
    part.graph.name = model.graph.name
    part.graph.input.extend(
        v for v in model.graph.input if v.name in needed or v.name not in graph.initializers
    )
    part.graph.node.extend(n for n in model.graph.node if needed.intersection(n.output))
    part.graph.initializer.extend(t for t in model.graph.initializer if t.name in needed)
    part.graph.output.append(ValueInfoProto(name=value))
    return part
