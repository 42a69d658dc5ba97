"""No input changes an output by more than the certificate says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onnxfde
from benchmarks.certificate_soundness import (
    SPELLED,
    exceeded,
    found_and_certified,
    random_network,
)
from tests.models import mlp, twins
from tests.proof.certificates import ROUNDING, bound, largest_change, samples, two_layers

ACTIVATIONS = [name for name in SPELLED if name != "square"]
EXACT_FACTOR = 400
"""How many u·A the certificate of a small exact merge may be, u that of float64 and A the network
on absolute values: up to 175 were seen, in 12 networks of each kind."""
SEARCHED = 150
"""Networks of each depth; `python -m benchmarks.certificate_soundness 2000` tries more."""


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.4, 0.7, 0.9]))
def test_no_input_exceeds_the_certificate_of_a_merged_layer(seed: int, keep: float) -> None:
    model = mlp(*twins(4, 2, 3, 2, seed))
    merged = onnxfde.optimize(model, keep=keep, quotient="refit", verify=False).model
    x = np.concatenate(samples((100, 3), 1, seed))
    most, size = largest_change(model, merged, [x])
    assert most <= bound(model, merged) + ROUNDING * size


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.5, 0.8]), st.sampled_from(["*", "a", "b"]))
def test_no_input_exceeds_the_certificate_of_two_merged_layers(
    seed: int, keep: float, which: str
) -> None:
    model = two_layers(seed)
    merged = onnxfde.optimize(
        model, keep=keep, layers=(which,), quotient="refit", verify=False
    ).model
    x = np.concatenate(samples((100, 3), 1, seed))
    most, size = largest_change(model, merged, [x])
    assert most <= bound(model, merged) + ROUNDING * size


@pytest.mark.parametrize("depth", [1, 2])
def test_no_searched_input_exceeds_the_certificate_of_random_networks(depth: int) -> None:
    """Random inputs, corners, and where gradients lead; the search comes close to the bound."""
    pairs = [found_and_certified(depth, seed) for seed in range(SEARCHED)]
    assert [seed for seed, pair in enumerate(pairs) if exceeded(*pair)] == []
    assert max(found / certified for found, certified in pairs if certified > 0) > 0.9


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_no_searched_input_exceeds_the_certificate_of_any_activation(name: str, depth: int) -> None:
    pairs = [found_and_certified(depth, seed, name) for seed in range(2)]
    assert [seed for seed, pair in enumerate(pairs) if exceeded(*pair)] == []
    assert max(found / certified for found, certified in pairs if certified > 0) > 0.2


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_exact_merges_of_any_activation_are_certified_to_rounding(name: str) -> None:
    """Every neuron of both layers is there twice; a jump is as large as it is behind rounding."""
    depth, seed = 1 if name == "ThresholdedRelu" else 2, 1
    found, certified = found_and_certified(depth, seed, name, exact=True)
    network = random_network(depth, np.random.default_rng((depth, seed)), SPELLED[name][0])
    size = np.ones((1, network[0].inputs))
    for layer in network:
        size = layer.magnitude(size)
    assert found <= certified <= EXACT_FACTOR * 2.0**-53 * size.max()
