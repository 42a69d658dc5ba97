"""Random layers for property tests."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from onnxfde.neurons.layer import Layer


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
