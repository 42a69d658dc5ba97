"""The index of a graph stays true while the graph is edited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from onnxfde.graph.edit import Edit, write_layer
from onnxfde.graph.match import find_layers
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto, NodeProto
from onnxfde.neurons.layer import Layer
from tests.models import build, mlp, twins

W, B, V, C = twins()
NAMES = ["", "x", "y", "a", "b", "c", "d"]


def index(graph: Graph) -> dict[str, Any]:
    """All that a graph knows of its values, with nodes and tensors as their positions."""
    nodes, tensors = list(graph.model.graph.node), list(graph.model.graph.initializer)
    place = {id(node): i for i, node in enumerate(nodes)}
    stored = {id(tensor): i for i, tensor in enumerate(tensors)}
    known = {*graph.producers, *graph.consumers, *graph.initializers, *NAMES}
    return {
        "producers": {name: place[id(node)] for name, node in graph.producers.items()},
        "consumers": {
            name: sorted(place[id(node)] for node in readers)
            for name, readers in graph.consumers.items()
        },
        "initializers": {name: stored[id(t)] for name, t in graph.initializers.items()},
        "uses": {name: graph.uses(name) for name in known},
        "taken": {name for name in known if graph.is_taken(name)},
        "constant": {name for name in known if graph.is_constant(name)},
        "overridable": graph.overridable,
        "inputs": [value.name for value in graph.inputs],
        "outputs": graph.outputs,
    }


def assert_true(graph: Graph) -> None:
    assert index(graph) == index(Graph(graph.model))


def a_node(data: st.DataObject, graph: Graph, fresh: str) -> NodeProto:
    """A new node that reads some values, perhaps twice or in a body, and makes a new one."""
    read = data.draw(st.lists(st.sampled_from(NAMES), max_size=3))
    node = helper.make_node("Sum", read, [fresh] if data.draw(st.booleans()) else ["", fresh])
    if data.draw(st.booleans()):
        inner = helper.make_node(
            "Add", data.draw(st.lists(st.sampled_from(NAMES), max_size=2)), ["t"]
        )
        result = helper.make_empty_tensor_value_info("t")
        node.attribute.append(
            helper.make_attribute("body", helper.make_graph([inner], "body", [], [result]))
        )
    return node


def insert(data: st.DataObject, graph: Graph, fresh: str) -> None:
    position = data.draw(st.integers(0, len(graph.model.graph.node)))
    graph.insert(a_node(data, graph, fresh), position)


def with_a_node(
    change: Callable[[st.DataObject, Graph, NodeProto, str], None],
) -> Callable[[st.DataObject, Graph, str], None]:
    def on_some_node(data: st.DataObject, graph: Graph, fresh: str) -> None:
        nodes = graph.model.graph.node
        if nodes:
            change(data, graph, nodes[data.draw(st.integers(0, len(nodes) - 1))], fresh)

    return on_some_node


def remove(data: st.DataObject, graph: Graph, node: NodeProto, fresh: str) -> None:
    graph.remove(node)


def set_input(data: st.DataObject, graph: Graph, node: NodeProto, fresh: str) -> None:
    if node.input:
        place = data.draw(st.integers(0, len(node.input) - 1))
        graph.set_input(node, place, data.draw(st.sampled_from(NAMES)))


def add_input(data: st.DataObject, graph: Graph, node: NodeProto, fresh: str) -> None:
    graph.add_input(node, data.draw(st.sampled_from(NAMES)))


def rename_output(data: st.DataObject, graph: Graph, node: NodeProto, fresh: str) -> None:
    graph.rename_output(node, fresh)


def add_tensor(data: st.DataObject, graph: Graph, fresh: str) -> None:
    """New, or the default of an input; NaN as well, which is not equal to itself."""
    free = [name for name in ("x", fresh) if name not in graph.initializers]
    values = [data.draw(st.sampled_from([0.0, 1.0, np.nan]))]
    graph.add_tensor(helper.make_tensor(data.draw(st.sampled_from(free)), 1, [1], values))


def remove_tensor(data: st.DataObject, graph: Graph, fresh: str) -> None:
    if graph.initializers:
        graph.remove_tensor(data.draw(st.sampled_from(sorted(graph.initializers))))


EDITS: list[Callable[[st.DataObject, Graph, str], None]] = [
    insert,
    insert,
    with_a_node(remove),
    with_a_node(set_input),
    with_a_node(add_input),
    with_a_node(rename_output),
    add_tensor,
    remove_tensor,
]


@given(st.data(), st.booleans())
def test_after_any_edits_the_index_is_that_of_a_new_graph(data: st.DataObject, early: bool) -> None:
    """Whether it was made before the first edit or is asked for only afterwards."""
    model = build("a = Add(x, k) b = Mul(a, a) y = Add(b, x)", outputs="float[N,3] y", k=B[:3])
    graph = Graph(model)
    if early:
        index(graph)
    fresh = [f"f{i}" for i in range(12)]
    for name in fresh[: data.draw(st.integers(1, len(fresh)))]:
        data.draw(st.sampled_from(EDITS))(data, graph, name)
    assert_true(graph)


def test_a_node_keeps_its_index_when_others_move() -> None:
    graph = Graph(build("a = Neg(x) b = Abs(a) y = Neg(b)", outputs="float[N,3] y"))
    last = graph.producers["y"]
    graph.insert(helper.make_node("Abs", ["x"], ["z"]), 0)
    assert graph.position(last) == 3
    graph.remove(graph.producers["a"])
    assert graph.position(last) == 2
    assert_true(graph)


def with_empty_inputs(model: ModelProto) -> ModelProto:
    """A Gemm without C may also have an empty name in its place."""
    for node in model.graph.node:
        if node.op_type == "Gemm":
            node.input.append("")
    return model


GEMM = "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) y = Gemm <transB = 1> (s, V, c)"
WEIGHTS: dict[str, Any] = {"W": W, "b": B, "V": V, "c": C}
EDITED: dict[str, ModelProto] = {
    "gemm": mlp(W, B, V, C),
    "folded constants": build(
        "a = MatMul(x, W) p = Mul(a, two) h = Add(p, b) s = Mul(h, h) t = Mul(s, two) "
        "d = MatMul(t, V) y = Add(d, c)",
        W=W.T, b=B, V=V.T, c=C, two=np.float32(2),
    ),
    "matmul without bias": build(
        "h = MatMul(x, W) s = Mul(h, h) y = MatMul(s, V) z = Neg(y)",
        outputs="float[N,2] y, float[N,2] z", W=W.T, V=V.T,
    ),
    "one reader": build(
        "h = MatMul(x, W) s = Mul(h, h) d = MatMul(s, V) y = Neg(d)", W=W.T, V=V.T
    ),
    "gemm without bias": build("h = Gemm(x, W) s = Mul(h, h) y = Gemm(s, V)", W=W.T, V=V.T),
    "gemm with an empty bias": with_empty_inputs(
        build("h = Gemm(x, W) s = Mul(h, h) y = Gemm(s, V)", W=W.T, V=V.T)
    ),
    "weight behind nodes": build(
        "W1 = Identity(W) W2 = Transpose(W1) h = Gemm(x, W2, b) s = Mul(h, h) "
        "y = Gemm <transB = 1> (s, V, c)", **WEIGHTS,
    ),
    "constant nodes": build(
        "k = Constant <value = float[1] {2.0}> () g = Gemm <transB = 1> (x, W, b) h = Mul(g, k) "
        "s = Mul(h, h) y = Gemm <transB = 1> (s, V, c)", **WEIGHTS,
    ),
    "shared weights": build(
        f"{GEMM} z = Gemm <transB = 1> (x, W, b)", outputs="float[N,2] y, float[N,6] z", **WEIGHTS
    ),
    "weights as outputs": build(GEMM, outputs="float[N,2] y, float[6,3] W", **WEIGHTS),
    "readers in bodies": build(
        "h = MatMul(x, W) s = Mul(h, h) d = MatMul(s, V) y = If(k) <"
        "then_branch = a () => (float[N,2] y1) { y1 = Neg(d) }, "
        "else_branch = e () => (float[N,2] y2) { y2 = Abs(d) }>",
        inputs="float[N,3] x, bool k", W=W.T, V=V.T,
    ),
    "dropout with a mask": build(
        "h = Gemm <transB = 1> (x, W, b) q, mask = Dropout(h) s = Mul(q, q) "
        "y = Gemm <transB = 1> (s, V, c)", **WEIGHTS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", EDITED)
def test_after_a_layer_is_written_the_index_is_that_of_a_new_graph(case: str) -> None:
    graph = Graph(EDITED[case]).copied()
    (match,), _ = find_layers(graph)
    index(graph)
    smaller = Layer(match.layer.incoming[:2], match.layer.outgoing[:, :2], np.array([1.0, 2.0]))
    write_layer(graph, match, smaller)
    assert_true(graph)
    ((again,), _) = find_layers(graph)
    np.testing.assert_array_equal(again.layer.incoming, smaller.incoming.astype(np.float32))
    np.testing.assert_array_equal(again.layer.offset, smaller.offset)


def test_a_bypassed_node_leaves_no_trace() -> None:
    graph = Graph(build("a = Mul(k, x) b = Abs(a) y = Add(a, b)", outputs="float[N,3] y", k=B[:3]))
    edit = Edit(graph, np.dtype(np.float32))
    edit.bypass(graph.producers["a"])
    edit.drop_unused()
    assert_true(graph)
    assert not graph.initializers
    assert [list(node.input) for node in graph.model.graph.node] == [["x"], ["x", "b"]]


def test_weights_that_are_tied_by_a_transpose_are_removed_with_it() -> None:
    """The incoming map reads W itself, the outgoing one its transpose."""
    model = build(
        "h = Gemm(x, W) s = Mul(h, h) T = Transpose(W) y = Gemm(s, T)",
        outputs="float[N,3] y", W=W.T,
    )  # fmt: skip
    graph = Graph(model)
    (match,), _ = find_layers(graph)
    write_layer(graph, match, match.layer.only([0, 1]))
    assert_true(graph)
    assert sorted(graph.initializers) == ["T_merged", "W_merged"]
    assert [node.op_type for node in graph.model.graph.node] == ["Gemm", "Mul", "Gemm"]


def test_constants_are_read_through_identity_transpose_and_cast() -> None:
    model = build("a = Identity(k) b = Transpose(a) c = Cast <to = 7> (b) y = Add(x, x)", k=W)
    found = Graph(model).constant("c")
    assert found is not None
    assert found.values.dtype == np.int64
    np.testing.assert_array_equal(found.values, W.T.astype(np.int64))


def test_a_default_of_an_input_is_no_constant() -> None:
    model = build("y = Add(x, k)", inputs="float[N,2] x, float[2] k", k=C)
    graph = Graph(model)
    assert graph.overridable == {"k"}
    assert [value.name for value in graph.inputs] == ["x"]
    assert not graph.is_constant("k")
    graph.remove_tensor("k")
    assert [value.name for value in graph.inputs] == ["x", "k"]
    graph.add_tensor(numpy_helper.from_array(C, "k"))
    assert_true(graph)


def test_constant_nodes_are_read_unless_they_are_sparse() -> None:
    model = build("two = Constant <value_float = 2.0> () y = Mul(x, two)")
    found = Graph(model).constant("two")
    assert found is not None
    assert found.values.dtype == np.float32
    assert found.values == 2
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.ones(1, np.float32), "v"),
        numpy_helper.from_array(np.zeros(1, np.int64), "i"),
        [6],
    )
    model.graph.node.append(helper.make_node("Constant", [], ["k"], sparse_value=sparse))
    assert not Graph(model).is_constant("k")
