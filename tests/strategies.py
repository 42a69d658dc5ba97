"""Random layers for property tests, and problems made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from onnxfde.neurons.kernels import Metric
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.polynomial_activations import polynomial
from onnxfde.neurons.problem import Problem
from onnxfde.running.random_inputs import latin_hypercube

CUBE = polynomial((0.0, 0.0, 0.0, 1.0))
"""x³."""


@st.composite
def layers(draw: st.DrawFn, most: int = 12) -> Layer:
    """Small layers in float32: generic, with duplicates, with dead and with constant neurons."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    inputs, outputs = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    neurons = draw(st.integers(1, most))
    incoming = rng.normal(size=(neurons, inputs + 1))
    outgoing = rng.normal(size=(outputs, neurons)) * rng.choice([0.01, 1.0, 10.0], neurons)
    for i in range(neurons):
        match draw(st.sampled_from(["own", "own", "copy", "dead", "constant", "silent"])):
            case "copy":
                incoming[i] = incoming[rng.integers(neurons)] * rng.choice([-3.0, 0.5, 1.0])
            case "dead":
                incoming[i] = 0.0
            case "constant":
                incoming[i, :-1] = 0.0
            case "silent":
                outgoing[:, i] = 0.0
    return Layer(incoming, outgoing, rng.normal(size=outputs)).stored_as(np.float32)


@st.composite
def redundant_layers(draw: st.DrawFn) -> Layer:
    """Layers in which the last neuron is another one again, scaled by a power of two or flipped."""
    layer = draw(layers(most=10))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    twin = layer.incoming[draw(st.integers(0, layer.neurons - 1))] * rng.choice([-2.0, 0.5, 1.0])
    weights = rng.normal(size=(layer.outputs, 1))
    both = Layer(
        np.vstack([layer.incoming, twin]), np.hstack([layer.outgoing, weights]), layer.offset
    )
    return both.stored_as(np.float32)


def problem_of(layer: Layer, metric: Metric | None = None, **more: Any) -> Problem:
    """A problem in float32 with inputs in [−1, 1], unless something else is said."""
    samples = latin_hypercube(64, layer.inputs, (-1.0, 1.0))
    metric = metric or Metric.box(layer.inputs, -1.0, 1.0)
    usual = {"samples": samples, "dtype": np.dtype(np.float32)}
    return Problem(layer, metric, **{**usual, **more})
