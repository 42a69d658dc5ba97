"""Limits on the certified error: what they allow, and what is said when they allow nothing."""

from __future__ import annotations

import onnxfde
from onnxfde.demo import demo_data, demo_model
from tests.models import twins

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
