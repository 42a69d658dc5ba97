"""Parts of a model compute what the whole computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import onnxfde
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto, ValueInfoProto
from onnxfde.graph.subgraph import part_making, values_after
from onnxfde.graph.tensors import copy_of
from onnxfde.numbers import Array
from onnxfde.running.runtime import ONNXRUNTIME, load
from tests.models import build, mlp, twins

RNG = np.random.default_rng(0)
FEEDS: dict[str, Array] = {
    "x": RNG.normal(size=(5, 4)).astype(np.float32),
    "k": np.array([True]),
}
MODEL = build(
    "a = Mul(x, gain) p, q = Split <axis = 1> (a) r = Relu(p) s = Add(r, q) "
    "t = If(k) <then_branch = yes () => (t1) { u1 = Neg(q) t1 = Add(u1, s) }, "
    "else_branch = no () => (t2) { t2 = Abs(r) }> "
    "m = MatMul(t, W) n = Add(m, s) y = Mul(n, shift)",
    inputs="float[N,4] x, bool[1] k, float[4] gain",
    outputs="float[N,2] y, float[N,2] s",
    gain=np.array([1, -2, 3, 0.5], np.float32),
    W=RNG.normal(size=(2, 2)).astype(np.float32),
    shift=np.float32(3),
)
VALUES = ["a", "p", "q", "r", "s", "t", "m", "n", "y"]


def run(model: ModelProto, feeds: dict[str, Array]) -> dict[str, Array]:
    """All outputs of a model in onnxruntime, which is given exactly its inputs."""
    runner = load(model, None)
    assert runner.engine == ONNXRUNTIME
    names = [value.name for value in model.graph.output]
    given = {value.name: feeds[value.name] for value in model.graph.input}
    return dict(zip(names, runner.run(given), strict=True))


def all_values(model: ModelProto, names: list[str]) -> dict[str, Array]:
    whole = copy_of(model)
    del whole.graph.output[:]
    whole.graph.output.extend(ValueInfoProto(name=name) for name in names)
    required = {value.name for value in Graph(whole).inputs}
    runner = load(whole, None)
    return dict(zip(names, runner.run({n: FEEDS[n] for n in required}), strict=True))


TRUE = all_values(MODEL, VALUES)


def check(model: ModelProto, wanted: list[str], known: list[str]) -> ModelProto:
    """Run a part and compare it with the whole; returns the part."""
    values = all_values(model, sorted({*wanted, *known}))
    part = part_making(Graph(model), wanted, {name: values[name] for name in known})
    found = run(part, FEEDS | values)
    assert list(found) == wanted
    for name in wanted:
        np.testing.assert_allclose(found[name], values[name], rtol=1e-6, atol=1e-6)
    return part


@settings(max_examples=60)
@given(st.sets(st.sampled_from(VALUES), min_size=1), st.sets(st.sampled_from(VALUES)))
def test_any_part_from_any_known_values_computes_what_the_whole_does(
    wanted: set[str], known: set[str]
) -> None:
    part = part_making(Graph(MODEL), sorted(wanted), {name: TRUE[name] for name in known})
    found = run(part, FEEDS | TRUE)
    for name in wanted:
        np.testing.assert_allclose(found[name], TRUE[name], rtol=1e-6, atol=1e-6)
    assert not wanted & {value.name for value in part.graph.input}


def names(values: Any) -> list[str]:
    return [value.name for value in values]


def test_a_part_starts_from_what_is_known() -> None:
    part = check(MODEL, ["n"], ["t", "s"])
    assert names(part.graph.input) == ["s", "t"]
    assert [node.op_type for node in part.graph.node] == ["MatMul", "Add"]
    assert names(part.graph.initializer) == ["W"]


def test_what_is_known_but_not_needed_is_no_input() -> None:
    part = check(MODEL, ["r"], ["p", "q", "t"])
    assert names(part.graph.input) == ["p"]


def test_an_input_that_is_known_is_an_input_once() -> None:
    part = check(MODEL, ["a"], ["x"])
    assert names(part.graph.input) == ["x"]


def test_a_node_with_a_known_and_a_needed_output_runs_again() -> None:
    """Split makes p, which is known, and q, which is not: its p is used."""
    part = check(MODEL, ["s"], ["p"])
    assert names(part.graph.input) == ["x"]
    assert "Split" in [node.op_type for node in part.graph.node]
    both = check(MODEL, ["s"], ["p", "q"])
    assert names(both.graph.input) == ["p", "q"]
    assert [node.op_type for node in both.graph.node] == ["Relu", "Add"]


def test_an_initializer_that_a_caller_may_override_is_a_constant_of_the_part() -> None:
    part = check(MODEL, ["a"], [])
    assert names(part.graph.input) == ["x"]
    assert names(part.graph.initializer) == ["gain"]


def test_an_old_model_whose_initializers_must_be_inputs_has_parts_too() -> None:
    model = build(
        "a = Add(x, b) y = Neg(a)",
        inputs="float[N,4] x, float[4] b",
        outputs="float[N,4] y",
        ir=3,
        opset=8,
        b=np.ones(4, np.float32),
    )
    part = check(model, ["y"], [])
    assert names(part.graph.input) == ["x"]
    assert names(check(model, ["y"], ["a"]).graph.input) == ["a"]


def test_values_that_a_body_reads_are_made_or_given() -> None:
    assert names(check(MODEL, ["t"], []).graph.input) == ["x", "k"]
    part = check(MODEL, ["t"], ["q", "r", "s"])
    assert names(part.graph.input) == ["k", "q", "r", "s"]
    assert [node.op_type for node in part.graph.node] == ["If"]


def test_a_known_value_that_is_a_graph_output_is_an_input_of_the_part() -> None:
    part = check(MODEL, ["y"], ["s", "t"])
    assert names(part.graph.input) == ["s", "t"]
    assert names(part.graph.output) == ["y"]


def test_a_value_that_is_wanted_is_made_although_it_is_known() -> None:
    part = check(MODEL, ["r", "s"], ["r", "p", "q"])
    assert names(part.graph.input) == ["p", "q"]


@pytest.mark.parametrize("kind", [np.float16, np.float64, np.int32, np.bool_])
def test_known_values_keep_their_type_and_number_of_axes(kind: Any) -> None:
    to = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    model = build(f"c = Cast <to = {to}> (x) y = Identity(c)", outputs="float[N,4] y")
    part = part_making(Graph(model), ["y"], {"c": FEEDS["x"].astype(kind)})
    (value,) = part.graph.input
    assert value.type.tensor_type.elem_type == to
    assert len(value.type.tensor_type.shape.dim) == 2
    (found,) = run(part, {"c": FEEDS["x"].astype(kind)}).values()
    np.testing.assert_array_equal(found, FEEDS["x"].astype(kind))


def test_sparse_initializers_and_functions_come_along() -> None:
    body = "f = Add(x, k) y = Identity(f)"
    model = build(body, inputs="float[N,4] x", outputs="float[N,4] y")
    values = numpy_helper.from_array(np.array([2.0], np.float32), "k")
    where = numpy_helper.from_array(np.array([1], np.int64), "where")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, where, [4]))
    part = check(model, ["f"], [])
    assert [tensor.values.name for tensor in part.graph.sparse_initializer] == ["k"]
    function = onnx.parser.parse_function(
        '<opset_import: ["": 17], domain: "own"> twice (a) => (r) { r = Add(a, a) }'
    )
    model.functions.append(function)
    model.opset_import.add(domain="own", version=1)
    model.graph.node[1].op_type, model.graph.node[1].domain = "twice", "own"
    assert check(model, ["y"], ["f"]).functions


def test_everything_computed_from_a_value_is_found_in_bodies_too() -> None:
    graph = Graph(MODEL)
    assert values_after(graph, "q") == {"q", "s", "t", "m", "n", "y"}
    assert values_after(graph, "r") == {"r", "s", "t", "m", "n", "y"}
    assert values_after(graph, "t") == {"t", "m", "n", "y"}
    assert values_after(graph, "gain") == {"gain", *VALUES}
    assert values_after(graph, "y") == {"y"}


def test_a_layer_behind_a_weight_that_a_caller_may_override_is_merged() -> None:
    model = mlp(*twins())
    model.graph.node.insert(0, helper.make_node("Mul", ["x", "gain"], ["scaled"]))
    model.graph.node[1].input[0] = "scaled"
    model.graph.input.append(helper.make_tensor_value_info("gain", 1, [3]))
    model.graph.initializer.append(numpy_helper.from_array(np.ones(3, np.float32), "gain"))
    assert onnxfde.optimize(model, eps=0).report.layers[0].neurons_after == 3
