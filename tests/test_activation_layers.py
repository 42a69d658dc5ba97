"""Whole runs on networks whose activations are not polynomials."""

from __future__ import annotations

import numpy as np
import pytest

import onnxfde
from onnxfde.graph.protos import ModelProto
from onnxfde.numbers import FloatArray
from tests.activation_models import planted_mlp
from tests.models import build, outputs_of

PLANTED = 68_865
DISTINCT = 4_929


def relu_layer(bias: FloatArray, inputs: int = 6, outputs: int = 3) -> ModelProto:
    """A layer of ReLUs with random weights."""
    rng, neurons = np.random.default_rng(1), len(bias)
    return build(
        "h = Gemm(x, w, b) r = Relu(h) y = MatMul(r, v)",
        inputs=f"float[N,{inputs}] x",
        outputs=f"float[N,{outputs}] y",
        w=rng.normal(size=(inputs, neurons)).astype(np.float32),
        b=bias.astype(np.float32),
        v=rng.normal(size=(neurons, outputs)).astype(np.float32),
    )


@pytest.mark.parametrize("operator", ["Relu", "Tanh", "Gelu"])
def test_planted_copies_are_all_found_without_data(operator: str) -> None:
    model = planted_mlp(operator)
    result = onnxfde.optimize(model)
    assert (result.report.parameters.before, result.report.parameters.after) == (PLANTED, DISTINCT)
    x = np.random.default_rng(2).uniform(-1, 1, (300, 10)).astype(np.float32)
    before, after = (outputs_of(m, x)[0].astype(np.float64) for m in (model, result.model))
    assert np.linalg.norm(after - before) <= 1e-6 * np.linalg.norm(before - before.mean(axis=0))


def test_without_data_a_layer_is_approximated_only_if_that_is_asked_for() -> None:
    model = relu_layer(np.zeros(40))
    unasked, asked, counted = (
        onnxfde.optimize(model, **options).report  # type: ignore[arg-type]
        for options in ({}, {"eps": 0.3}, {"keep": 0.3})
    )
    assert unasked.layers[0].eps == 0
    assert not unasked.changed
    assert "give --data" in (unasked.layers[0].remark or "")
    assert asked.layers[0].neurons_after < 40
    assert counted.layers[0].neurons_after == 12
    assert "the error on real inputs is not known" in (counted.layers[0].remark or "")


def test_with_data_a_layer_is_approximated() -> None:
    rng = np.random.default_rng(3)
    x = (rng.normal(size=(600, 2)) @ rng.normal(size=(2, 6))).astype(np.float32)
    report = onnxfde.optimize(relu_layer(rng.normal(size=40)), data=x).report
    assert report.layers[0].neurons_after < 30
    assert report.verification is not None
    assert (report.verification.relative_l2 or 0.0) <= 0.15
    assert report.layers[0].remark is None


def test_only_an_explicit_range_removes_neurons_that_never_switch() -> None:
    off, on = np.full(10, -100.0), np.full(10, 100.0)
    model = relu_layer(np.concatenate([off, on, np.zeros(8)]))
    x = np.random.default_rng(4).uniform(-1, 1, (200, 6)).astype(np.float32)
    assert not onnxfde.optimize(model, 0.0).report.changed
    assert not onnxfde.optimize(model, 0.0, data=x).report.changed
    result = onnxfde.optimize(model, 0.0, input_range=(-1.0, 1.0))
    layer = result.report.layers[0]
    assert layer.neurons_after == 8 + 3  # the linear part of three outputs takes three neurons
    assert layer.range_only
    assert "--input-range" in (layer.remark or "")
    before, after = (outputs_of(m, x)[0] for m in (model, result.model))
    np.testing.assert_allclose(after, before, rtol=0, atol=2e-3)  # values up to 1,000


def test_blocks_that_are_only_projected_are_refused() -> None:
    report = onnxfde.optimize(relu_layer(np.zeros(8)), 0.3, quotient="single").report
    assert "give refit or minimal" in report.refused[0].reason


def test_data_outside_the_range_makes_it_no_fact() -> None:
    model = relu_layer(np.concatenate([np.full(10, -100.0), np.zeros(8)]))
    x = np.random.default_rng(5).uniform(-2, 2, (200, 6)).astype(np.float32)
    assert not onnxfde.optimize(model, 0.0, input_range=(-1.0, 1.0), data=x).report.changed
