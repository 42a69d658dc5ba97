"""Layers with near-duplicates among their neurons, and networks of given weights."""

from __future__ import annotations

import numpy as np
import onnx

from benchmarks.common.random_network import GRAPH
from onnxfde.neurons.layer import Layer

NOISE = 1e-4
"""How far near-duplicates lie from their origin; chosen far below the ε of `benchmarks.scale`."""


def make_layer(shape: str, kind: str) -> Layer:
    """Random weights with some near-duplicates, with none, or with nothing else.

    `planted`: a tenth of the neurons are near-duplicates of others; `distinct`: none; `cluster`:
    all are near-duplicates of one. Incoming rows have ‖u‖₁ = 1, outgoing columns max |V| = 1.
    """
    inputs, neurons, outputs = map(int, shape.split("-"))
    rng = np.random.default_rng(0)
    distinct = {"planted": neurons - neurons // 10, "distinct": neurons, "cluster": 1}[kind]
    incoming = rng.normal(size=(distinct, inputs + 1))
    outgoing = rng.normal(size=(outputs, distinct))
    source = np.concatenate([np.arange(distinct), rng.integers(0, distinct, neurons - distinct)])
    incoming = incoming[source] * (1 + NOISE * rng.normal(size=(neurons, inputs + 1)))
    outgoing = outgoing[:, source] + NOISE * rng.normal(size=(outputs, neurons))
    incoming /= np.abs(incoming).sum(axis=1, keepdims=True)
    return Layer(incoming, outgoing / np.abs(outgoing).max(axis=0), np.zeros(outputs))


def network_of(layer: Layer) -> onnx.ModelProto:
    """Gemm → Mul(h, h) → Gemm with a layer's weights in float32."""
    model = onnx.parser.parse_model(GRAPH.format(inputs=layer.inputs, outputs=layer.outputs))
    incoming, bias = layer.incoming[:, :-1], layer.incoming[:, -1]
    arrays = {"W": incoming, "b": bias, "V": layer.outgoing, "c": layer.offset}
    for name, array in arrays.items():
        stored = np.ascontiguousarray(array, dtype=np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(stored, name))
    return model
