"""Limits on the certified error: what they allow, and what is said when they allow nothing."""

from __future__ import annotations

import numpy as np
import pytest

import onnxfde
from onnxfde.demo import demo_data, demo_model
from onnxfde.options import Relation
from tests.models import build, mlp, twins

W, B, V, C = twins()


def test_layers_are_reported_when_a_limit_allows_nothing() -> None:
    report = onnxfde.optimize(
        demo_model(), 0.1, data=demo_data(), quotient="refit", max_certified_error=1e-12
    ).report
    assert report.unchanged == "nothing merges within --max-certified-error 1e-12"
    (layer,) = report.layers
    assert (layer.neurons_before, layer.neurons_after) == (120, 120)
    assert not layer.changed
    assert layer.measured_error == layer.error == 0.0


def test_layers_after_others_are_reported_as_they_are_when_a_limit_allows_nothing() -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.normal(size=s).astype(np.float32) for s in ((8, 20), (20, 9), (9, 3)))
    body = "h = MatMul(x, a) r = Relu(h) k = MatMul(r, b) q = Relu(k) y = MatMul(q, c)"
    model = build(body, "float[N,8] x", "float[N,3] y", a=a, b=b, c=c)
    found = onnxfde.optimize(model, 0.5, quotient="refit", max_certified_error=1e-9).report
    assert found.unchanged
    sizes = [(n.inputs, n.neurons_before, n.outputs, n.parameters_before) for n in found.layers]
    assert sizes == [(8, 20, 9, 8 * 20 + 20 * 9), (20, 9, 3, 20 * 9 + 9 * 3)]
    assert [(n.parameters_after, n.eps) for n in found.layers] == [(340, None), (207, None)]


def test_a_limit_does_not_depend_on_the_eps_one_starts_from() -> None:
    rng = np.random.default_rng(0)
    shapes = ((12, 3), (12,), (2, 12), (2,))
    model = mlp(*(rng.normal(size=s).astype(np.float32) for s in shapes))
    left = [onnxfde.optimize(model, eps, max_certified_error=1.0) for eps in (0.3, 0.5)]
    first, second = (result.report for result in left)
    assert 1 < first.layers[0].neurons_after == second.layers[0].neurons_after < 6
    assert first.certificate == second.certificate


@pytest.mark.parametrize("relation", ["forward", "backward"])
def test_a_limit_lowers_the_threshold_of_the_paper_too(relation: Relation) -> None:
    """Its scale is that of the weights, which may be large."""
    rng = np.random.default_rng(0)
    shapes = ((12, 6), (12,), (3, 12), (3,))
    model = mlp(*((30 * rng.normal(size=s)).astype(np.float32) for s in shapes))
    found = onnxfde.optimize(
        model, 1e5, semantics="paper", relation=relation, max_certified_error=3e6
    ).report
    assert found.layers[0].neurons_after < 12
    assert found.certificate is not None
    assert found.certificate.largest <= 3e6
