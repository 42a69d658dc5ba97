"""Channels that do nothing go, and nothing changes: over random graphs, in onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onnxfde.errors import RuntimeUnavailable
from onnxfde.graph.find_axes import find_axes, read_again
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto, NodeProto
from onnxfde.numbers import Array
from onnxfde.passes.lossless_channels import remove_units
from onnxfde.passes.unit_facts import unit_facts
from onnxfde.proof.value_bounds import NetworkBounds
from onnxfde.running.runtime import load
from tests.graph.axis_cases import between, image, normal
from tests.models import build, outputs_of

UNITS = 6
SIDE = 11
MIDDLES = (
    "nothing", "Relu", "Sigmoid", "LeakyRelu", "Tanh", "MaxPool", "AveragePool", "depthwise", "Pad",
    "BatchNormalization", "GlobalAveragePool",
)  # fmt: skip


def tensor(name: str, values: Array) -> TensorProto:
    return numpy_helper.from_array(np.asarray(values, np.float32), name)


def window(rng: np.random.Generator, kernel: list[int]) -> dict[str, Any]:
    """A window with any padding; pads are less than the kernel, as pools want it."""
    auto = rng.choice(["NOTSET", "NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"])
    found: dict[str, Any] = {"kernel_shape": kernel, "strides": rng.integers(1, 3, 2).tolist()}
    if auto == "NOTSET":
        return {**found, "pads": rng.integers(0, 2, 4).tolist(), **dilated(rng)}
    return {**found, "auto_pad": str(auto), **(dilated(rng) if auto == "VALID" else {})}


def dilated(rng: np.random.Generator) -> dict[str, Any]:
    return {"dilations": rng.integers(1, 3, 2).tolist()}


def middle(kind: str, number: int, value: str, rng: np.random.Generator) -> tuple[Any, Any]:
    """A node that acts on each channel by itself, and its tensors."""
    out, name = f"m{number}", f"{kind}{number}"
    if kind in ("MaxPool", "AveragePool"):
        options = window(rng, [2, 3])
        if kind == "AveragePool":
            options["count_include_pad"] = int(rng.integers(2))
        return helper.make_node(kind, [value], [out], name, **options), []
    if kind == "depthwise":
        weight = rng.standard_normal((UNITS, 1, 3, 2))
        bias = rng.standard_normal(UNITS)
        weight[1], bias[1] = weight[2], bias[2]
        node = helper.make_node(
            "Conv", [value, f"{name}w", f"{name}b"], [out], name, group=UNITS,
            **window(rng, [3, 2]),
        )  # fmt: skip
        return node, [tensor(f"{name}w", weight), tensor(f"{name}b", bias)]
    if kind == "Pad":
        border = numpy_helper.from_array(np.array([0, 0, 1, 0, 0, 0, 0, 1]), f"{name}p")
        outside = tensor(f"{name}v", rng.choice([0.0, 0.5]))
        mode = str(rng.choice(["constant", "constant", "edge", "reflect"]))
        names = [value, f"{name}p", f"{name}v"]
        return helper.make_node("Pad", names, [out], name, mode=mode), [border, outside]
    if kind == "BatchNormalization":
        names = [f"{name}{i}" for i in range(4)]
        arrays = [rng.uniform(0.5, 2, UNITS) for _ in names]
        for array in arrays:
            array[1] = array[2]
        node = helper.make_node(kind, [value, *names], [out], name)
        return node, [tensor(n, a) for n, a in zip(names, arrays, strict=True)]
    return helper.make_node(kind, [value], [out], name), []


def network(
    seed: int, kinds: list[str], producer: dict[str, Any], *readers: dict[str, Any]
) -> Graph:
    """Conv with planted channels → nodes in between → one Conv, or more."""
    rng = np.random.default_rng(seed)
    rows, bias = rng.standard_normal((UNITS, 2, 3, 3)), rng.standard_normal(UNITS)
    rows[0], bias[0] = 0, rng.choice([-1.0, 0.0, 1.0])
    rows[1], bias[1] = rows[2], bias[2]
    rows[3], bias[3] = 2 * rows[2], 2 * bias[2]
    rows[4] = 0
    weights = [tensor("w", rows), tensor("b", bias)]
    nodes: list[NodeProto] = [helper.make_node("Conv", ["x", "w", "b"], ["h"], "first", **producer)]
    value = "h"
    for number, kind in enumerate(k for k in kinds if k != "nothing"):
        node, more = middle(kind, number, value, rng)
        nodes.append(node)
        weights += more
        value = node.output[0]
    kernel = (1, 1) if "GlobalAveragePool" in kinds else (2, 3)
    for number, reader in enumerate(readers):
        weights.append(tensor(f"v{number}", rng.standard_normal((3, UNITS, *kernel))))
        words = [value, f"v{number}"], [f"y{number}"], f"reader{number}"
        nodes.append(helper.make_node("Conv", *words, **reader))
    return Graph(made_model(nodes, weights, len(readers)))


def made_model(nodes: list[NodeProto], weights: list[TensorProto], outputs: int) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2, SIDE, SIDE])],
        [
            helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, ["N", None, None, None])
            for i in range(outputs)
        ],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    onnx.checker.check_model(model)
    return model


def without_idle_channels(
    graph: Graph, limits: tuple[float, float] | None, align: int = 1
) -> tuple[Graph, int]:
    """The graph after removal, and how many channels are left."""
    work = graph.copied()
    (axis,), _ = find_axes(work)
    bounds = None if limits is None else NetworkBounds(graph, {"x": limits})
    left = remove_units(work, read_again(work, axis), unit_facts(work, axis, bounds), align)
    onnx.checker.check_model(work.model, full_check=True)
    return work, left.units


def largest_change(before: Graph, after: Graph, limits: tuple[float, float]) -> float:
    x = np.random.default_rng(1).uniform(*limits, (4, 2, SIDE, SIDE)).astype(np.float32)
    old, new = (load(g.model, None).run({"x": x}) for g in (before, after))
    assert [a.shape for a in old] == [a.shape for a in new]
    largest = [
        np.abs(b - a).max() / max(np.abs(a).max(), 1.0) for a, b in zip(old, new, strict=True)
    ]
    return float(max(largest))


def can_run(graph: Graph) -> bool:
    """Whether anything is left of the maps at the end."""
    try:
        load(graph.model, None).run({"x": np.zeros((1, 2, SIDE, SIDE), np.float32)})
    except RuntimeUnavailable:
        return False
    return True


windows = st.fixed_dictionaries(
    {
        "pads": st.lists(st.integers(0, 2), min_size=4, max_size=4),
        "strides": st.lists(st.integers(1, 2), min_size=2, max_size=2),
        "dilations": st.lists(st.integers(1, 2), min_size=2, max_size=2),
    }
)
same = st.sampled_from(
    [
        {"auto_pad": "SAME_UPPER"},
        {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
        {"auto_pad": "VALID", "dilations": [2, 1]},
    ]
)
chains = st.lists(st.sampled_from(MIDDLES), max_size=3).filter(
    lambda kinds: "GlobalAveragePool" not in kinds[:-1]
)


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 10**6), chains, windows | same,
    st.lists(windows | same, min_size=1, max_size=2), st.booleans(),
)  # fmt: skip
def test_removing_idle_channels_changes_no_output(
    seed: int,
    kinds: list[str],
    producer: dict[str, Any],
    readers: list[dict[str, Any]],
    ranged: bool,
) -> None:
    """With any paddings, strides and dilations, pools in between, and two readers that differ."""
    if "GlobalAveragePool" in kinds:
        readers = [{} for _ in readers]
    graph = network(seed, kinds, producer, *readers)
    assume(can_run(graph))
    limits = (0.0, 1.0) if ranged else None
    smaller, units = without_idle_channels(graph, limits)
    assert units < UNITS, "a channel that is there twice goes whatever is between"
    assert largest_change(graph, smaller, limits or (-3.0, 3.0)) <= 2e-6
    for align in (2, 4, UNITS):
        smaller, more = without_idle_channels(graph, limits, align)
        assert units <= more < units + align
        assert more % align == 0 or more == UNITS
        assert largest_change(graph, smaller, limits or (-3.0, 3.0)) <= 2e-6


def test_constant_goes_into_the_bias_only_without_padding() -> None:
    """Sigmoid of 0 is 1/2 inside and 0 beyond the border."""
    bare, padded = {"pads": [0] * 4}, {"pads": [0, 1, 0, 0]}
    readers = {"bare": [bare], "padded": [padded], "one of two": [bare, padded]}
    left = {
        name: without_idle_channels(network(0, ["Sigmoid"], {}, *of), None)[1]
        for name, of in readers.items()
    }
    assert left["bare"] == 3  # 0 and 4 are constants, 1 is 2; 3 = 2·2 is another function
    assert left["padded"] == left["one of two"] == 5


@pytest.mark.parametrize(
    ("between", "left"), [("", UNITS - 1), ("t = MaxPool <kernel_shape = [2]> (r)", UNITS)]
)
def test_signals_of_any_length(between: str, left: int) -> None:
    """A channel that is 0 at every position goes if nothing in between looks at neighbours."""
    rng = np.random.default_rng(0)
    rows, bias = rng.standard_normal((UNITS, 2, 3)), np.zeros(UNITS)
    rows[:2], bias[:2] = 0, (-1.0, 1.0)
    model = build(
        f"h = Conv <pads = [1, 1]> (x, W, b) r = Relu(h) {between} "
        f"y = Conv <pads = [1, 1]> ({'t' if between else 'r'}, V)",
        inputs="float[N,2,L] x",
        outputs="float[N,3,M] y",
        W=rows.astype(np.float32),
        b=bias.astype(np.float32),
        V=rng.standard_normal((3, UNITS, 3)).astype(np.float32),
    )
    smaller, units = without_idle_channels(Graph(model), None)
    assert units == left
    for length in (2, 9):
        x = rng.standard_normal((3, 2, length)).astype(np.float32)
        (old,), (new,) = outputs_of(model, x), outputs_of(smaller.model, x)
        np.testing.assert_allclose(new, old, rtol=0, atol=2e-6)


def test_multiples_go_where_positive_factors_can_be_taken_out() -> None:
    for kinds, units in ((["Relu"], 1 + 1), (["Tanh"], 2 + 1), (["Relu", "MaxPool"], 1 + 1)):
        assert without_idle_channels(network(0, kinds, {}, {}), None)[1] == units, kinds


def test_sums_of_other_channels_go_where_nothing_bends_them() -> None:
    graph = network(3, ["AveragePool"], {}, {"pads": [1, 1, 1, 1]})
    rows = numpy_helper.to_array(graph.model.graph.initializer[0]).copy()
    bias = numpy_helper.to_array(graph.model.graph.initializer[1]).copy()
    rows[5], bias[5] = rows[2] - rows[0] / 2, bias[2] - bias[0] / 2
    graph.model.graph.initializer[0].CopyFrom(tensor("w", rows))
    graph.model.graph.initializer[1].CopyFrom(tensor("b", bias))
    smaller, units = without_idle_channels(Graph(graph.model), None)
    assert units <= 3
    assert largest_change(graph, smaller, (-3, 3)) <= 2e-6


def test_a_small_filter_that_is_read_by_large_weights_stays() -> None:
    graph = network(4, ["AveragePool"], {}, {})
    before = without_idle_channels(graph, None)[1]
    for name, factor in (("w", 1e-7), ("b", 1e-7), ("v0", 1e7)):
        values = numpy_helper.to_array(graph.initializers[name]).copy()
        np.moveaxis(values, int(name == "v0"), 0)[5] *= factor
        graph.initializers[name].CopyFrom(tensor(name, values))
    smaller, units = without_idle_channels(Graph(graph.model), None)
    assert units == before
    assert largest_change(graph, smaller, (-3, 3)) <= 2e-6


@pytest.mark.parametrize("reach", [0.1, 10.0])
def test_bounds_hold_in_their_range_only(reach: float) -> None:
    """A ReLU that no input in the range switches on goes, and another range brings it back."""
    graph = network(5, ["Relu"], {}, {"pads": [1, 1, 1, 1]})
    bias = numpy_helper.to_array(graph.model.graph.initializer[1]).copy()
    bias[5] = -5.0
    graph.model.graph.initializer[1].CopyFrom(tensor("b", bias))
    _, units = without_idle_channels(Graph(graph.model), (0.0, reach))
    anywhere = without_idle_channels(Graph(graph.model), None)[1]
    assert (units < anywhere) == (reach == 0.1)


def test_a_unit_without_weights_says_nothing_about_the_others() -> None:
    """Filters that a ReLU seldom lets through stay, though one beside them has no weights."""
    graph = network(5, ["BatchNormalization", "Relu"], {}, {})
    for tensor_of in graph.model.graph.initializer:
        if tensor_of.name == "BatchNormalization02":
            tensor_of.CopyFrom(tensor("BatchNormalization02", np.full(UNITS, 5.0)))
    smaller, units = without_idle_channels(graph, None)
    assert units == 3  # 2 with its copy 1, 3 and 5; 0 and 4 have no weights
    assert largest_change(graph, smaller, (-30.0, 30.0)) <= 2e-6


@pytest.mark.parametrize(("constants", "left"), [((1, 2, 3, 4, 5, 6), 6), ((1, 2, 3, 1, 2, 3), 3)])
def test_equal_filters_whose_flattened_maps_are_scaled(
    constants: tuple[float, ...], left: int
) -> None:
    """With channels last, the constants of one channel are far apart."""
    model = between(
        "t = Transpose <perm = [0, 2, 3, 1]> (h) f = Flatten(t) r = Mul(f, k)",
        "y = Gemm <transB = 1> (r, V, c)",
        W=np.repeat(normal(1, 2, 3, 3), UNITS, axis=0),
        b=np.ones(UNITS, np.float32),
        k=np.tile(np.array(constants, np.float32), 64),
        V=normal(3, UNITS * 64),
        outputs="float[N,3] y",
    )
    smaller, units = without_idle_channels(Graph(model), None)
    old, new = (outputs_of(m, image())[0] for m in (model, smaller.model))
    assert units == left
    np.testing.assert_allclose(new, old, rtol=0, atol=1e-5)
