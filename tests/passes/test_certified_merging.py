"""Limits on the certified error: what they allow, and what is said when they allow nothing."""

from __future__ import annotations

import numpy as np
import pytest

import onnxfde
from onnxfde.demo import demo_data, demo_model
from onnxfde.options import Relation
from tests.models import mlp, twins

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


def test_a_limit_does_not_depend_on_the_eps_one_starts_from() -> None:
    left = [
        onnxfde.optimize(demo_model(), eps, data=demo_data(), max_certified_error=0.01)
        for eps in (0.1, 0.3)
    ]
    first, second = (result.report for result in left)
    assert first.layers[0].neurons_after == second.layers[0].neurons_after <= 9
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
