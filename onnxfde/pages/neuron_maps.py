"""Which neurons went where: each neuron beside the one of the result that it resembles most.

    ρ_ij = correlation of neuron i of the original and neuron j of the result, before the activation

on rows that were kept for comparing both. Where the sign of a neuron makes no difference (squares),
|ρ| counts. Rows of incoming weights are put into an order in which neurons that resemble the same
one stand side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from onnxfde.errors import RuntimeUnavailable
from onnxfde.graph.find_axes import find_axes
from onnxfde.graph.match import find_layers
from onnxfde.graph.model import Graph
from onnxfde.graph.weight_matrices import array_at
from onnxfde.numbers import FloatArray, Indices
from onnxfde.passes.result import LayerChange
from onnxfde.progress import Progress
from onnxfde.running.input_source import InputSource
from onnxfde.running.recording import Recording
from onnxfde.running.samples import Samples

MOST_SAMPLES = 64
"""Samples on which neurons are compared."""
MOST_ROWS = 4096
"""Rows of values by which neurons are compared: of maps, positions of these samples."""
SHOWN_NEURONS, SHOWN_INPUTS = 48, 64
"""The size of a picture: of larger layers, some groups and the inputs with the largest weights."""


@dataclass(frozen=True, eq=False)
class Units:
    """The units of one layer in a graph: how they are found among its values, and their weights."""

    value: str
    axis: int
    """Which axis of the value counts the units."""
    count: int
    weights: FloatArray
    even: bool = False
    """Whether the sign of a unit makes no difference."""

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether a value of this shape has the units where they are expected."""
        place = self.axis if self.axis >= 0 else len(shape) + self.axis
        return 0 <= place < len(shape) and shape[place] == self.count


@dataclass(frozen=True, eq=False)
class NeuronMap:
    """The incoming weights of a layer, in groups of neurons that resemble the same one."""

    layer: str
    neurons: int
    inputs: int
    weights: FloatArray
    """Rows of the neurons shown, each divided by its largest weight, and turned to the sign of the
    one it resembles."""
    groups: Indices
    """For each row, the neuron of the result."""
    similarity: FloatArray
    """For each row, its correlation with that."""
    kept: FloatArray | None
    """The same weights of that neuron itself, where the layer still has the same inputs."""


def neuron_maps(
    original: Graph, result: Graph, layers: Iterable[LayerChange], samples: Samples | None
) -> dict[str, NeuronMap]:
    """The maps of those layers that changed and whose values are known in both graphs."""
    changed = {layer.name for layer in layers if layer.changed and layer.neurons_after}
    if samples is None or not changed:
        return {}
    before, after = layer_units(original), layer_units(result)
    common = [name for name in before if name in after and name in changed]
    some = samples.some(MOST_SAMPLES)
    try:
        old = unit_values(original, [before[name] for name in common], some)
        new = unit_values(result, [after[name] for name in common], some)
    except RuntimeUnavailable:
        return {}
    pairs = zip(common, old, new, strict=True)
    return {
        name: mapped(name, before[name], after[name], a, b)
        for name, a, b in pairs
        if len(a) == len(b) > 0
    }


def layer_units(graph: Graph) -> dict[str, Units]:
    """The units of all layers of a graph, by the names of their layers."""
    found = {}
    for axis in find_axes(graph, dense=False)[0]:
        value = axis.producer.node.output[0]
        weights = array_at(graph, axis.producer.node, axis.producer.weight.place)
        rows = np.moveaxis(weights, axis.producer.weight.dim, 0).reshape(axis.units, -1)
        found[axis.name] = Units(value, axis.values.get(value, 1), axis.units, rows)
    for match in find_layers(graph)[0]:
        layer = match.layer
        place = -2 if match.incoming.layout == "columns" else -1
        weights = layer.incoming[:, : layer.inputs]
        value = match.incoming.node.output[0]
        found[match.name] = Units(value, place, layer.neurons, weights, layer.activation.even)
    return found


def unit_values(graph: Graph, units: list[Units], samples: Samples) -> list[FloatArray]:
    """The values of units on samples, one column for each; of maps, at some positions."""
    recording = Recording.of(graph, InputSource(), Progress(), samples)
    parts: list[list[FloatArray]] = [[] for _ in units]
    per_run = max(MOST_ROWS // max(recording.samples.runs, 1), 1)
    for values in recording.batches([one.value for one in units]) if units else ():
        for own, one in zip(parts, units, strict=True):
            if not one.fits(values[one.value].shape):
                continue
            rows = np.moveaxis(values[one.value], one.axis, -1).reshape(-1, one.count)
            pick = np.linspace(0, len(rows) - 1, min(per_run, len(rows))).astype(int)
            own.append(rows[pick].astype(np.float64))
    return [
        np.concatenate([np.zeros((0, u.count)), *own]) for own, u in zip(parts, units, strict=True)
    ]


def mapped(name: str, units: Units, left: Units, old: FloatArray, new: FloatArray) -> NeuronMap:
    """The map of one layer, from values in both graphs."""
    found = correlations(old, new)
    likeness = np.abs(found) if units.even else found
    best = np.argmax(likeness, axis=1)
    near = likeness[np.arange(len(best)), best]
    signs = np.sign(found[np.arange(len(best)), best]) if units.even else np.ones(len(best))
    order = np.array(list(group_order(best, near))[:SHOWN_NEURONS], dtype=np.intp)
    inputs = units.weights.shape[1]
    largest = np.sort(np.linalg.norm(units.weights, axis=0).argsort()[::-1][:SHOWN_INPUTS])
    rows = evened_rows(units.weights[order][:, largest] * signs[order, None])
    same = left.weights.shape[1] == inputs
    kept = evened_rows(left.weights[best[order]][:, largest]) if same else None
    return NeuronMap(name, units.count, inputs, rows, best[order], near[order], kept)


def evened_rows(rows: FloatArray) -> FloatArray:
    """Rows whose largest number is 1 or −1."""
    tallest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    return np.asarray(rows / np.where(tallest > 0, tallest, 1.0))


def correlations(old: FloatArray, new: FloatArray) -> FloatArray:
    """Between every column of one array and every column of another; 0 for constant ones."""
    parts = []
    for values in (old, new):
        centred = values - values.mean(axis=0)
        size = np.linalg.norm(centred, axis=0)
        parts.append(np.nan_to_num(centred / np.where(size > 0, size, 1.0)))
    return np.asarray(parts[0].T @ parts[1])


def group_order(best: Indices, near: FloatArray) -> Iterator[int]:
    """Rows group by group, large groups first, and in a group those that are nearest first."""
    sizes = np.bincount(best)
    yield from np.lexsort((-near, best, -sizes[best])).tolist()
