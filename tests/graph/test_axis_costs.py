"""Costs as a function of counts are those of the model that was edited."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxfde.graph.axis_costs import AxisCosts, axis_costs
from onnxfde.graph.cost import multiply_adds, one_sample
from onnxfde.graph.edit_axes import keep_units
from onnxfde.graph.find_axes import find_axes
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.graph.size import count_parameters
from tests.graph.axis_cases import OUTPUTS, UNITS, between, normal

CHAIN = between(
    "n = BatchNormalization(h, k, k, m, k) a = Relu(n) d = Conv <group = 6> (a, D) "
    "g = Conv(d, V, c) s = PRelu(g, q) p = MaxPool <kernel_shape = [2, 2]> (s) r = Flatten(p)",
    "y = Gemm <transB = 1> (r, U)",
    k=np.ones(UNITS, np.float32),
    m=normal(UNITS),
    D=normal(UNITS, 1, 3, 3),
    q=normal(OUTPUTS, 1, 1),
    U=normal(4, OUTPUTS * 9),
    outputs="float[N,4] y",
)
SHARED = between(
    "p = Conv(h, V) q = Relu(p) o = Conv(q, V) r = Mul(o, k)",
    "s = Conv(r, V) y = Conv(s, U) z = Mul(k, k)",
    V=normal(UNITS, UNITS, 1, 1),
    U=normal(3, UNITS, 1, 1),
    k=normal(UNITS, 1, 1),
    outputs="float[N,3,P,Q] y, float[6,1,1] z",
)


def costs_of(model: ModelProto) -> AxisCosts:
    graph = Graph(model)
    return axis_costs(graph, find_axes(graph)[0], one_sample(graph))


def edited(model: ModelProto, counts: dict[str, int]) -> ModelProto:
    graph = Graph(model).copied()
    for axis in find_axes(graph)[0]:
        keep_units(graph, axis, np.arange(counts.get(axis.name, axis.units)))
    return graph.model


@pytest.mark.parametrize("model", [CHAIN, SHARED], ids=["chain", "shared"])
@given(data=st.data())
def test_costs_are_those_of_the_edited_model(model: ModelProto, data: st.DataObject) -> None:
    costs = costs_of(model)
    assert len(costs.units) == (2 if model is CHAIN else 4)
    counts = {name: data.draw(st.integers(1, units)) for name, units in costs.units.items()}
    result = edited(model, counts)
    assert costs.total_macs(counts) == multiply_adds(result, {"x": (1, 2, 8, 8)})
    assert costs.total_parameters(counts) == count_parameters(result)


def test_axes_that_are_not_named_keep_their_units() -> None:
    costs = costs_of(CHAIN)
    assert costs.total_parameters({}) == count_parameters(CHAIN)
    assert costs.total_macs({}) == costs.total_macs(dict(costs.units))
    assert costs.total_macs({"first": 2}) == multiply_adds(
        edited(CHAIN, {"first": 2}), {"x": (1, 2, 8, 8)}
    )


def test_macs_that_cannot_be_counted_are_not_guessed() -> None:
    model = between(
        "r = Relu(h)",
        "g = Conv(r, V) m = ReduceMean <axes = [2, 3], keepdims = 0> (g) "
        'y = Einsum <equation = "ij,jk->ik"> (m, U)',
        U=normal(3, 2),
        outputs="float[N,2] y",
    )
    costs = costs_of(model)
    assert costs.total_macs({}) is None
    assert costs.total_parameters({"first": 3}) == count_parameters(edited(model, {"first": 3}))
