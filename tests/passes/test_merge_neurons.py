"""The pass merge-neurons by itself, its semantics and quotients, and options it refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import onnxfde
from onnxfde.demo import demo_model
from onnxfde.errors import OptionError, UsageError
from onnxfde.graph.model import Graph
from onnxfde.neurons.layer import Layer
from onnxfde.options import Quotient
from onnxfde.passes.merge_neurons import MergeNeurons, share_of_work
from tests.models import mlp, twins

W, B, V, C = twins()


def test_a_pass_can_be_applied_by_itself() -> None:
    result = MergeNeurons(eps=0).apply(Graph(mlp(W, B, V, C)))
    assert result.changed
    assert result.layers[0].neurons_after == 3
    assert not MergeNeurons(eps=0).apply(Graph(result.model)).changed


@pytest.mark.parametrize("quotient", ["single", "exact", "refit"])
def test_quotients_of_the_paper_semantics(quotient: Quotient) -> None:
    result = onnxfde.optimize(
        demo_model(),
        0.15,
        semantics="paper",
        quotient=quotient,
        input_range=(0, 1),
    )
    assert result.report.changed
    assert result.report.layers[0].neurons_after < 120


def test_refit_is_closer_than_single_on_the_same_blocks() -> None:
    def error(quotient: Quotient) -> float:
        report = onnxfde.optimize(
            demo_model(),
            0.1,
            semantics="paper",
            quotient=quotient,
            input_range=(0, 1),
        ).report
        return report.layers[0].error

    assert error("refit") < error("single")


def test_the_budget_can_use_single_neurons_without_a_refit() -> None:
    single = onnxfde.optimize(demo_model(), quotient="single", input_range=(0, 1)).report.layers[0]
    refit = onnxfde.optimize(demo_model(), input_range=(0, 1)).report.layers[0]
    assert single.error <= 0.1
    assert refit.neurons_after < single.neurons_after < 120


def test_an_exact_quotient_that_saves_nothing_changes_nothing() -> None:
    rows = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    model = mlp(rows, np.zeros(2, np.float32), np.ones((2, 2), np.float32), C)
    assert not onnxfde.optimize(model, 0, semantics="paper", quotient="exact").report.changed


def test_the_paper_semantics_with_a_count() -> None:
    report = onnxfde.optimize(demo_model(), semantics="paper", neurons=10).report
    assert report.layers[0].neurons_after == 10


def test_dead_and_constant_neurons_go_in_the_paper_semantics_too() -> None:
    w, b, v = W.copy(), B.copy(), V.copy()
    w[0], b[1], w[1] = 0, 0, 0
    v[:, 2] = 0
    model = mlp(w, b, v, C)
    report = onnxfde.optimize(model, 0, semantics="paper").report
    assert report.layers[0].neurons_after == 3
    assert report.verification is not None
    assert report.verification.relative_l2 is not None
    assert report.verification.relative_l2 < 1e-6
    dead = mlp(np.zeros_like(w), b, v, C)
    assert onnxfde.optimize(dead, 0, semantics="paper").report.layers[0].neurons_after == 1


def test_options_are_checked_when_a_pass_is_built() -> None:
    with pytest.raises(OptionError, match="not a number"):
        MergeNeurons(eps=float("nan"))
    with pytest.raises(UsageError, match="is not one of budget, paper"):
        MergeNeurons(semantics="other")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="cannot be combined"):
        MergeNeurons(layer_eps=(("a", 0.1),), keep=0.5)


def test_erode_sums_and_chains_only() -> None:
    for options in ({"linkage": "diameter"}, {"norm": "max", "relation": "backward"}):
        with pytest.raises(UsageError, match="ERODE sums and chains"):
            MergeNeurons(semantics="erode", **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="--norm max needs --relation backward"):
        MergeNeurons(semantics="paper", norm="max")
    with pytest.raises(UsageError, match="decides the count"):
        MergeNeurons(semantics="paper", quotient="exact", neurons=3)


def test_a_count_for_a_large_layer_needs_a_threshold_in_paper_semantics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("onnxfde.lumping.threshold_frontier.MOST_PAIRED", 100)
    with pytest.raises(OptionError, match="has more than 100 neurons: give --eps"):
        onnxfde.optimize(demo_model(), semantics="paper", neurons=10)
    report = onnxfde.optimize(demo_model(), 0.0, semantics="paper").report
    assert report.unchanged == "no neurons merge at this setting"


def test_the_time_that_is_left_is_divided_by_the_work_of_the_layers() -> None:
    layers = [Layer(np.ones((n, 4)), np.ones((2, n)), np.ones(2)) for n in (10, 20, 10)]
    matches: Any = [SimpleNamespace(layer=layer) for layer in layers]
    assert share_of_work(matches) == pytest.approx(1 / 6, rel=1e-12)
    assert share_of_work(matches[1:]) == pytest.approx(4 / 5, rel=1e-12)
    assert share_of_work(matches[2:]) == 1.0
