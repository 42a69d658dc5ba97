"""The paper's working example, in mathematics and in ONNX."""

from __future__ import annotations

import numpy as np
import pytest

import onnxfde
from onnxfde.graph.match import find_layers
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.lumping.distance import condensed
from onnxfde.lumping.partition import Dendrogram
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.quotients import forward_exact, forward_single
from onnxfde.options import Norm
from tests.models import mlp, outputs_of

INCOMING = np.array([[1.00, 0.50, 0.10], [1.02, 0.48, 0.12]])
LAYER = Layer(INCOMING, np.array([[1.0, 1.0]]), np.array([0.58]))


def working_example() -> ModelProto:
    w, b = INCOMING[:, :2].astype(np.float32), INCOMING[:, 2].astype(np.float32)
    return mlp(w, b, np.ones((1, 2), np.float32), np.array([0.58], np.float32))


def merged(**options: object) -> ModelProto:
    return onnxfde.optimize(working_example(), semantics="paper", **options).model  # type: ignore[arg-type]


def neurons(model: ModelProto) -> int:
    return find_layers(Graph(model))[0][0].layer.neurons


def test_both_neurons_are_one_exact_forward_block() -> None:
    assert Dendrogram.of(LAYER, "forward", "sum", "closure").cut(0.0) == ((0, 1),)


def test_the_exact_quotient_has_rank_two_and_loses_nothing() -> None:
    quotient = forward_exact(LAYER, ((0, 1),))
    assert quotient.neurons == 2
    x = np.random.default_rng(0).uniform(-1, 1, (100, 2))
    np.testing.assert_allclose(quotient(x), LAYER(x), rtol=0, atol=1e-12)


def test_two_neurons_of_rank_two_stay_as_they_are_in_onnx() -> None:
    assert merged(eps=0, quotient="exact") == working_example()


def test_the_exact_quotient_of_more_neurons_in_onnx_reproduces_the_output() -> None:
    rng = np.random.default_rng(0)
    w, b = (rng.normal(size=s).astype(np.float32) for s in ((6, 2), (6,)))
    model = mlp(w, b, np.ones((1, 6), np.float32), np.array([0.58], np.float32))
    result = onnxfde.optimize(model, 0, semantics="paper", quotient="exact").model
    assert neurons(result) == 3
    x = rng.uniform(-1, 1, (100, 2)).astype(np.float32)
    np.testing.assert_allclose(
        outputs_of(result, x)[0], outputs_of(model, x)[0], rtol=1e-6, atol=1e-6
    )


def test_the_single_quotient_is_the_paper_s_aggregated_neuron() -> None:
    quotient = forward_single(LAYER, ((0, 1),))
    row = quotient.incoming[0] * np.sign(quotient.incoming[0, 0])
    np.testing.assert_allclose(row, [1.4284, 0.6929, 0.1556], rtol=0, atol=5e-5)
    np.testing.assert_allclose(quotient.outgoing, [[1.0]], rtol=0, atol=1e-15)


def test_the_single_quotient_in_onnx_is_that_neuron_up_to_scale() -> None:
    (match,), _ = find_layers(Graph(merged(eps=0)))
    square = match.layer.outgoing[0, 0] * match.layer.incoming[0] ** 2
    np.testing.assert_allclose(np.sqrt(square), [1.4284, 0.6929, 0.1556], rtol=0, atol=5e-5)


@pytest.mark.parametrize(
    ("norm", "joins", "does_not"), [("max", 0.0449, 0.0447), ("sum", 0.1453, 0.1451)]
)
def test_backward_thresholds(norm: Norm, joins: float, does_not: float) -> None:
    assert neurons(merged(eps=joins, relation="backward", norm=norm)) == 1
    assert neurons(merged(eps=does_not, relation="backward", norm=norm)) == 2


def test_the_unrounded_gaps() -> None:
    assert condensed(LAYER, "backward", "max")[0] == pytest.approx(0.0448, abs=1e-12)
    assert condensed(LAYER, "backward", "sum")[0] == pytest.approx(0.1452, abs=1e-12)


def test_when_nothing_merges_the_smallest_useful_eps_is_named() -> None:
    report = onnxfde.optimize(
        working_example(), 0.01, semantics="paper", relation="backward"
    ).report
    assert report.unchanged is not None
    assert "something merges at ε = 0.146" in report.unchanged
