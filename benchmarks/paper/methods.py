"""What makes a network smaller: the paper's method, its rivals, and ours, all on the ONNX file.

The paper prunes single weights by setting them to zero, only in the matrices into the wide layers:

    magnitude   the smallest |W_ij| of the matrix
    Wanda       the smallest |W_ij|·‖x_j‖ of each input j, x_j on 128 samples (‖x_j‖ is common to a
                column, so |W_ij| decides alone: the paper's GRP column allows no other reading)

`forward` and `backward` are ε-FDE and ε-BDE with one neuron for each block, at the paper's ε;
`erode` is ε-FDE as the paper's tool decides it, with as many neurons as a block needs. The others
get a count of neurons: the largest that leaves no more parameters than the paper's row has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from math import floor
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import onnxfde
from benchmarks.paper.published import Row
from benchmarks.tasks import Array
from onnxfde.graph.edit import write_layer
from onnxfde.graph.match import Match, find_layers
from onnxfde.graph.model import Graph
from onnxfde.graph.size import count_parameters
from onnxfde.graph.tensors import copy_of
from onnxfde.neurons.layer import Layer
from onnxfde.options import Quotient, Relation, Semantics

CALIBRATION = 128
KNOWN = 2000
"""Unlabelled training inputs for `refit-data` and `minimal-data`."""


@dataclass(frozen=True, eq=False)
class Network:
    """A trained network, and what a method may know of its inputs."""

    path: Path
    known: Array
    """Training inputs."""
    limits: tuple[float, float]

    @cached_property
    def model(self) -> onnx.ModelProto:
        """The original."""
        return onnx.load(self.path)

    @cached_property
    def layers(self) -> list[Match]:
        """Its wide layers, in order."""
        return find_layers(Graph(self.model))[0]

    @cached_property
    def lossless(self) -> onnx.ModelProto:
        """The fewest neurons that compute the same up to rounding."""
        return optimized(self, eps=0.0, quotient="minimal")

    @property
    def input(self) -> str:
        """The name of its only input."""
        return str(self.model.graph.input[0].name)

    def inputs_of(self, values: list[str], samples: int) -> list[Array]:
        """What some values inside are, on the first training inputs."""
        probe = copy_of(self.model)
        inner = [v for v in values if v != self.input]
        probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inner)
        x = self.known[:samples]
        found = dict(zip(inner, run(probe, x, inner), strict=True)) if inner else {}
        return [found.get(value, x) for value in values]


def run(model: onnx.ModelProto, x: Array, outputs: list[str] | None = None) -> list[Array]:
    """The outputs of a model in onnxruntime."""
    from onnxruntime import InferenceSession

    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(y) for y in session.run(outputs, {session.get_inputs()[0].name: x})]


def mean_squared_error(model: onnx.ModelProto, x: Array, y: Array) -> float:
    """How far a model is from the targets."""
    (output,) = run(model, x)
    return float(np.mean((output.astype(np.float64) - y) ** 2))


def grp_percent(model: onnx.ModelProto, original: onnx.ModelProto) -> float:
    """Remaining nonzero parameters, in percent of all parameters of the original."""
    return 100 * count_parameters(model, original) / count_parameters(original)


def widths(model: onnx.ModelProto) -> list[int]:
    """Neurons of each wide layer."""
    return [match.layer.neurons for match in find_layers(Graph(model))[0]]


def affordable(network: Network, target_grp: float) -> int:
    """The most neurons in each wide layer (the same in all) with at most that GRP %."""
    total, layers = count_parameters(network.model), [m.layer for m in network.layers]
    each = sum(layer.inputs + 1 + layer.outputs for layer in layers)
    fixed = total - sum(n.neurons * (n.inputs + 1 + n.outputs) for n in layers)
    return max(1, floor((target_grp / 100 * total - fixed) / each + 1e-9))


def optimized(network: Network, **options: Any) -> onnx.ModelProto:
    """What onnxfde makes of a network; it knows the range of the inputs."""
    limits = network.limits
    return onnxfde.optimize(
        network.path, input_range=limits, verify=False, certify=False, **options
    ).model


def lumped(
    semantics: Semantics, relation: Relation, quotient: Quotient, network: Network, row: Row
) -> onnx.ModelProto:
    """ε-FDE (forward) or ε-BDE (backward) as in the paper or in its tool."""
    eps = {m.name: eps for m, eps in zip(network.layers, row.eps, strict=True)}
    return optimized(
        network, layer_eps=eps, semantics=semantics, relation=relation, quotient=quotient
    )


def merged(quotient: Quotient, data: bool, network: Network, row: Row) -> onnx.ModelProto:
    """By onnxfde's own search, with no more parameters than the paper's row has."""
    neurons = affordable(network, row.fde.grp)
    if quotient == "minimal" and neurons >= max(widths(network.lossless)):
        return network.lossless
    known = {network.input: network.known[:KNOWN].copy()} if data else None
    return optimized(network, neurons=neurons, quotient=quotient, data=known)


def structured(network: Network, row: Row) -> onnx.ModelProto:
    """Keep the neurons with the largest ‖u_i‖²·‖V_i‖, as many as `merged` may have."""
    neurons, graph = affordable(network, row.fde.grp), Graph(copy_of(network.model))
    for at in range(len(network.layers)):
        match = find_layers(graph)[0][at]
        write_layer(graph, match, strongest(match.layer, neurons))
        graph = Graph(graph.model)
    return graph.model


def strongest(layer: Layer, neurons: int) -> Layer:
    """The neurons that can contribute most; nothing makes up for the others."""
    strength = (layer.incoming**2).sum(axis=1) * np.linalg.norm(layer.outgoing, axis=0)
    kept = np.sort(np.argsort(-strength, kind="stable")[:neurons])
    return Layer(layer.incoming[kept], layer.outgoing[:, kept], layer.offset)


def magnitude(network: Network, row: Row) -> onnx.ModelProto:
    """Set the smallest weights into each wide layer to zero."""
    return without_weights(network, lambda at, w: smallest(np.abs(w), row.magnitude_percent))


def wanda(network: Network, row: Row) -> onnx.ModelProto:
    """Set the weights of each input with the smallest scores to zero."""
    inputs = network.inputs_of([m.source for m in network.layers], CALIBRATION)

    def pruned(at: int, weight: Array) -> Array:
        columns = wanda_score(weight, inputs[at]).T
        return np.stack([smallest(column, row.wanda_percent) for column in columns], axis=1)

    return without_weights(network, pruned)


def wanda_score(weight: Array, x: Array) -> Array:
    """|W_ij|·‖x_j‖ of a matrix with one row for each neuron, on samples."""
    norms = np.linalg.norm(x.astype(np.float64), axis=0)
    return np.asarray(np.abs(weight) * norms)


def smallest(score: Array, percent: float) -> Array:
    """Where the lowest scores are: that share of them, rounded down."""
    count = floor(percent / 100 * score.size + 1e-9)
    lowest = np.zeros(score.size, dtype=bool)
    lowest[np.argsort(score, axis=None, kind="stable")[:count]] = True
    return lowest.reshape(score.shape)


def without_weights(network: Network, pruned: Callable[[int, Array], Array]) -> onnx.ModelProto:
    """Zeros in the matrices into the wide layers, as exporters write them: Gemm with transB."""
    model = copy_of(network.model)
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for at, match in enumerate(network.layers):
        tensor = tensors[match.incoming.node.input[1]]
        weight = onnx.numpy_helper.to_array(tensor)
        if weight.shape != (match.layer.neurons, match.layer.inputs):
            raise ValueError(f"'{tensor.name}' does not have one row for each neuron")
        zeroed = np.where(pruned(at, weight), weight.dtype.type(0), weight)
        tensor.CopyFrom(onnx.numpy_helper.from_array(zeroed, tensor.name))
    return model


METHODS: dict[str, Callable[[Network, Row], onnx.ModelProto]] = {
    "forward": partial(lumped, "paper", "forward", "single"),
    "backward": partial(lumped, "paper", "backward", "single"),
    "erode": partial(lumped, "erode", "forward", "exact"),
    "magnitude": magnitude,
    "wanda": wanda,
    "structured": structured,
    "refit": partial(merged, "refit", False),
    "refit-data": partial(merged, "refit", True),
    "minimal": partial(merged, "minimal", False),
    "minimal-data": partial(merged, "minimal", True),
}
COUNTED = ("structured", "refit", "refit-data", "minimal", "minimal-data")
"""Methods that get a count of neurons, and so any GRP."""
