"""The methods that make a network smaller: the paper's, the ones it compares with, and ours.

All work on the ONNX file. The paper prunes single weights by setting them to zero, only in the
matrices into the wide layers:

    magnitude   the smallest |W_ij| of the matrix
    Wanda       the smallest |W_ij|·‖x_j‖ of each input j, with x_j on 128 samples (within a column
                ‖x_j‖ is constant and |W_ij| alone decides, but no other reading of Wanda gives the
                paper's GRP)

`forward` and `backward` are ε-FDE and ε-BDE with one neuron per block, at the paper's ε; `erode` is
ε-FDE as the paper's tool computes it, with as many neurons as a block needs. The other methods get
a number of neurons: the largest that leaves no more parameters than the paper's row has.
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
from benchmarks.common.layers import layers_of, widths, with_layer
from benchmarks.common.pruning import strongest
from benchmarks.common.scores import outputs_of
from benchmarks.paper.published import Row
from onnxfde.graph.match import Match
from onnxfde.graph.size import count_parameters
from onnxfde.graph.tensors import copy_of
from onnxfde.numbers import Array
from onnxfde.options import Quotient, Relation, Semantics

CALIBRATION = 128
"""Inputs for the scores of Wanda: the paper's."""
KNOWN = 2000
"""Unlabelled training inputs for `refit-data` and `minimal-data`; chosen."""
FLOOR_SLACK = 1e-9
"""Added before rounding down, so that 3 computed as 2.9999… stays 3."""


@dataclass(frozen=True, eq=False)
class Network:
    """A trained network, and what a method may know about its inputs."""

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
        return layers_of(self.model)

    @cached_property
    def lossless(self) -> onnx.ModelProto:
        """The network with the fewest neurons that compute the same up to rounding."""
        return optimized(self, eps=0.0, quotient="minimal")

    @property
    def input(self) -> str:
        """The name of its only input."""
        return str(self.model.graph.input[0].name)

    def inputs_of(self, values: list[str], samples: int) -> list[Array]:
        """Some values inside the network, on the first training inputs."""
        probe = copy_of(self.model)
        inner = [v for v in values if v != self.input]
        probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inner)
        x = self.known[:samples]
        found = dict(zip(inner, outputs_of(probe, x, inner), strict=True)) if inner else {}
        return [found.get(value, x) for value in values]


def affordable(network: Network, target_grp: float) -> int:
    """The most neurons in each wide layer (the same in all) with at most that GRP %."""
    total, layers = count_parameters(network.model), [m.layer for m in network.layers]
    each = sum(layer.inputs + 1 + layer.outputs for layer in layers)
    fixed = total - sum(n.neurons * (n.inputs + 1 + n.outputs) for n in layers)
    return max(1, floor((target_grp / 100 * total - fixed) / each + FLOOR_SLACK))


def optimized(network: Network, **options: Any) -> onnx.ModelProto:
    """The result of onnxfde, which knows the range of the inputs."""
    limits = network.limits
    return onnxfde.optimize(
        network.path, input_range=limits, verify=False, certify=False, **options
    ).model


def lumped(
    semantics: Semantics, relation: Relation, quotient: Quotient, network: Network, row: Row
) -> onnx.ModelProto:
    """ε-FDE (forward) or ε-BDE (backward), as in the paper or in its tool."""
    eps = {m.name: eps for m, eps in zip(network.layers, row.eps, strict=True)}
    return optimized(
        network, layer_eps=eps, semantics=semantics, relation=relation, quotient=quotient
    )


def merged(quotient: Quotient, data: bool, network: Network, row: Row) -> onnx.ModelProto:
    """The search of onnxfde, with no more parameters than the paper's row has."""
    neurons = affordable(network, row.fde.grp)
    if quotient == "minimal" and neurons >= max(widths(network.lossless)):
        return network.lossless
    known = {network.input: network.known[:KNOWN].copy()} if data else None
    return optimized(network, neurons=neurons, quotient=quotient, data=known)


def structured(network: Network, row: Row) -> onnx.ModelProto:
    """Keep the strongest neurons of each layer, as many as `merged` may have."""
    neurons, model = affordable(network, row.fde.grp), network.model
    for at in range(len(network.layers)):
        model = with_layer(model, strongest(layers_of(model)[at].layer, neurons), at)
    return model


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
    """|W_ij|·‖x_j‖ for a matrix with one row per neuron, on samples."""
    norms = np.linalg.norm(x.astype(np.float64), axis=0)
    return np.asarray(np.abs(weight) * norms)


def smallest(score: Array, percent: float) -> Array:
    """A mask of the lowest scores: `percent` of all, rounded down."""
    count = floor(percent / 100 * score.size + FLOOR_SLACK)
    lowest = np.zeros(score.size, dtype=bool)
    lowest[np.argsort(score, axis=None, kind="stable")[:count]] = True
    return lowest.reshape(score.shape)


def without_weights(network: Network, pruned: Callable[[int, Array], Array]) -> onnx.ModelProto:
    """A copy with zeros in the matrices into the wide layers, which must be Gemm with transB."""
    model = copy_of(network.model)
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for at, match in enumerate(network.layers):
        tensor = tensors[match.incoming.node.input[1]]
        weight = onnx.numpy_helper.to_array(tensor)
        if weight.shape != (match.layer.neurons, match.layer.inputs):
            raise ValueError(f"'{tensor.name}' does not have one row per neuron")
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
"""The methods that get a number of neurons, and can so reach any GRP."""
