"""Layers are found in every spelling, and what is no layer is refused with its reason."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import onnxfde
from onnxfde.graph.match import find_layers
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from tests.models import build, mlp, outputs_of, twins

W, B, V, C = twins()
X = np.random.default_rng(1).uniform(-1, 1, (50, 3)).astype(np.float32)
ROW = B[None]
K = 2.0 ** np.arange(6, dtype=np.float32)


def expected(x: np.ndarray, w: Any = W, b: Any = B, v: Any = V, c: Any = C) -> Any:
    return (x @ w.T + b) ** 2 @ v.T + c


SPELLINGS: dict[str, tuple[ModelProto, Any]] = {
    "gemm": (mlp(W, B, V, C), expected(X)),
    "gemm not transposed": (
        build("h = Gemm(x, W, b) s = Mul(h, h) y = Gemm(s, V, c)", W=W.T, b=B, V=V.T, c=C),
        expected(X),
    ),
    "gemm with alpha and beta": (
        build(
            "h = Gemm <transB = 1, alpha = 0.5, beta = 2.0> (x, W, b) s = Mul(h, h) "
            "y = Gemm <transB = 1, alpha = -3.0, beta = 0.25> (s, V, c)",
            W=W * 2,
            b=B / 2,
            V=V / -3,
            c=C * 4,
        ),
        expected(X),
    ),
    "gemm without C": (
        build(
            "h = Gemm <transB = 1> (x, W) s = Mul(h, h) y = Gemm <transB = 1> (s, V)",
            W=W,
            V=V,
        ),
        expected(X, b=0, c=0),
    ),
    "gemm with C as a row, then as a scalar": (
        build(
            "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) y = Gemm <transB = 1> (s, V, c)",
            W=W,
            b=ROW,
            V=V,
            c=np.float32(0.5),
        ),
        expected(X, c=0.5),
    ),
    "matmul and add, either side": (
        build(
            "a = MatMul(x, W) h = Add(b, a) s = Mul(h, h) d = MatMul(s, V) y = Add(d, c)",
            W=W.T,
            b=B,
            V=V.T,
            c=C,
        ),
        expected(X),
    ),
    "matmul without add": (
        build("h = MatMul(x, W) s = Mul(h, h) y = MatMul(s, V)", W=W.T, V=V.T),
        expected(X, b=0, c=0),
    ),
    "pow with a float exponent": (
        build(
            "h = Gemm <transB = 1> (x, W, b) s = Pow(h, two) y = Gemm <transB = 1> (s, V, c)",
            W=W,
            b=B,
            V=V,
            c=C,
            two=np.float32(2),
        ),
        expected(X),
    ),
    "pow with an integer exponent in a Constant node": (
        build(
            "two = Constant <value = int64[1] {2}> () h = Gemm <transB = 1> (x, W, b) "
            "s = Pow(h, two) y = Gemm <transB = 1> (s, V, c)",
            W=W,
            b=B,
            V=V,
            c=C,
        ),
        expected(X),
    ),
    "constants on the hidden value": (
        build(
            "a = MatMul(x, W) p = Mul(a, k) q = Add(p, b) r = Sub(q, one) h = Div(r, two) "
            "s = Mul(h, h) t = Mul(four, s) u = Sub(one, t) y = Gemm <transB = 1> (u, V, c)",
            W=(2 * W / K[:, None]).T,
            b=2 * ROW + 1,
            V=V,
            c=C,
            k=K,
            one=np.float32(1),
            two=np.array([2.0], np.float32),
            four=np.full(6, 4.0, np.float32),
        ),
        (1 - 4 * (X @ W.T + B) ** 2) @ V.T + C,
    ),
    "weight behind Identity, Transpose and Cast": (
        build(
            "W1 = Identity(W) W2 = Transpose <perm = [1, 0]> (W1) W3 = Cast <to = 1> (W2) "
            "h = Gemm(x, W3, b) s = Mul(h, h) V1 = Transpose(V) y = Gemm(s, V1, c)",
            W=W.astype(np.float64),
            b=B,
            V=V,
            c=C,
        ),
        expected(X),
    ),
    "identity, dropout and flatten inside": (
        build(
            "h = Gemm <transB = 1> (x, W, b) i = Identity(h) d = Dropout(i, half) f = Flatten(d) "
            "s = Mul(f, f) j = Identity(s) y = Gemm <transB = 1> (j, V, c)",
            W=W,
            b=B,
            V=V,
            c=C,
            half=np.float32(0.5),
        ),
        expected(X),
    ),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_layer_of_twins_is_found_and_halved(spelling: str) -> None:
    model, wanted = SPELLINGS[spelling]
    (before,) = outputs_of(model, X)
    np.testing.assert_allclose(before, wanted, rtol=2e-5, atol=2e-5)
    result = onnxfde.optimize(model, eps=0)
    assert [layer.neurons_after for layer in result.report.layers] == [3]
    (after,) = outputs_of(result.model, X)
    np.testing.assert_allclose(after, before, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "double"])
def test_other_dtypes(dtype: str) -> None:
    kind = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "double": np.float64}[dtype]
    w, b, v, c = (a.astype(kind) for a in twins(inputs=7))
    model = build(
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) y = Gemm <transB = 1> (s, V, c)",
        inputs=f"{dtype}[N,7] x",
        outputs=f"{dtype}[N,2] y",
        W=w,
        b=b,
        V=v,
        c=c,
    )
    result = onnxfde.optimize(model, eps=0)
    assert result.report.layers[0].neurons_after == 3
    assert result.report.layers[0].dtype == np.dtype(kind).name
    assert {t.data_type for t in result.model.graph.initializer} == {
        helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    }


def test_matmul_on_more_than_two_axes() -> None:
    model = build(
        "a = MatMul(x, W) h = Add(a, b) s = Mul(h, h) d = MatMul(s, V) y = Add(d, c)",
        inputs="float[N,5,3] x",
        outputs="float[N,5,2] y",
        W=W.T,
        b=B.reshape(1, 1, 6),
        V=V.T,
        c=C,
    )
    x = np.random.default_rng(0).uniform(-1, 1, (4, 5, 3)).astype(np.float32)
    result = onnxfde.optimize(model, eps=0)
    assert result.report.layers[0].neurons_after == 3
    np.testing.assert_allclose(outputs_of(result.model, x)[0], expected(x), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("bias", [True, False])
def test_matmul_with_the_weight_on_the_left(bias: bool) -> None:
    weights: dict[str, Any] = {"W": W, "V": V}
    if bias:
        weights |= {"b": B[:, None], "c": C[:, None]}
    adds = ("h = Add(a, b)", "y = Add(d, c)") if bias else ("h = Identity(a)", "y = Identity(d)")
    model = build(
        f"a = MatMul(W, x) {adds[0]} s = Mul(h, h) d = MatMul(V, s) {adds[1]}",
        inputs="float[3,N] x",
        outputs="float[2,N] y",
        **weights,
    )
    result = onnxfde.optimize(model, eps=0, input_range=(0, 1))
    assert result.report.layers[0].neurons_after == 3
    wanted = expected(X) if bias else expected(X, b=0, c=0)
    np.testing.assert_allclose(outputs_of(result.model, X.T)[0][0].T, wanted, rtol=2e-5, atol=2e-5)


def test_a_single_vector_multiplied_from_the_left() -> None:
    model = build(
        "a = MatMul(W, x) h = Add(a, b) s = Mul(h, h) d = MatMul(V, s) y = Add(d, c)",
        inputs="float[3] x",
        outputs="float[2] y",
        W=W,
        b=B,
        V=V,
        c=C,
    )
    result = onnxfde.optimize(model, eps=0)
    assert result.report.layers[0].neurons_after == 3
    assert result.report.verification is not None
    assert result.report.verification.samples == 3 * 342


def test_in_a_chain_both_layers_are_optimized_and_share_the_middle_map() -> None:
    w2, b2, v2, c2 = twins(distinct=4, inputs=2, outputs=1, seed=5)
    middle, shift = w2 @ V, w2 @ C + b2
    model = build(
        "[a] h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) [m] g = Gemm <transB = 1> (s, M, k) "
        "t = Mul(g, g) [z] y = Gemm <transB = 1> (t, V, c)",
        outputs="float[N,1] y",
        W=W,
        b=B,
        M=middle.astype(np.float32),
        k=shift.astype(np.float32),
        V=v2,
        c=c2,
    )
    (before,) = outputs_of(model, X)
    result = onnxfde.optimize(model, eps=0)
    assert [(layer.name, layer.neurons_after) for layer in result.report.layers] == [
        ("a", 3),
        ("m", 2),
    ]
    np.testing.assert_allclose(outputs_of(result.model, X)[0], before, rtol=1e-3, atol=1e-4)


def test_names_come_from_the_node_else_its_output_and_repeated_ones_are_numbered() -> None:
    model = build(
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) [n] g = Gemm <transB = 1> (s, V, c) "
        "i = Identity(g) [n] k = Gemm <transB = 1> (i, W2) t = Mul(k, k) "
        "[o] l = Gemm <transB = 1> (t, V) "
        "[n] m = Gemm <transB = 1> (l, W2) u = Mul(m, m) y = Gemm <transB = 1> (u, V)",
        W=W,
        b=B,
        V=V,
        c=C,
        W2=W[:, :2],
    )
    assert [m.name for m in find_layers(Graph(model))[0]] == ["h", "n", "n#2"]


def test_a_weight_shared_with_another_node_is_copied() -> None:
    model = build(
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) y = Gemm <transB = 1> (s, V, c) "
        "z = Gemm <transB = 1> (x, W, b)",
        outputs="float[N,2] y, float[N,6] z",
        W=W,
        b=B,
        V=V,
        c=C,
    )
    before, after = (outputs_of(m, X) for m in (model, onnxfde.optimize(model, eps=0).model))
    np.testing.assert_allclose(after[0], before[0], rtol=2e-5, atol=2e-5)
    np.testing.assert_array_equal(after[1], before[1])


GEMMS = "h = Gemm <transB = 1> (x, W, b) {} y = Gemm <transB = 1> (s, V, c)"
WEIGHTS: dict[str, Any] = {"W": W, "b": B, "V": V, "c": C}


def refusals(model: ModelProto) -> list[str]:
    matches, refused = find_layers(Graph(model))
    assert not matches
    return [refusal.reason for refusal in refused]


@pytest.mark.parametrize(
    ("body", "extra", "reason"),
    [
        (GEMMS.format("s = Mul(h, h) z = Relu(h)"), {}, "'h' inside it is used by 2 nodes"),
        (GEMMS.format("s = Mul(h, h) z = Relu(s)"), {}, "'s' inside it is used by 2 nodes"),
        (GEMMS.format("r = Relu(h) s = Mul(r, r)"), {}, "Relu 'r' stands before the square"),
        (GEMMS.format("t = Mul(h, h) s = Relu(t)"), {}, "Relu 's' stands after the square"),
        (GEMMS.format("q = Div(one, h) s = Mul(q, q)"), {"one": np.float32(1)}, "Div 'q' stands"),
        (GEMMS.format("q = Add(h, x2) s = Mul(q, q)"), {}, "Add 'q' stands before"),
        ("h = Mul(x, x) y = Gemm <transB = 1> (h, V2)", {"V2": V[:, :3]}, "'x', which it reads"),
        (GEMMS.replace("transB = 1> (x, W, b)", "transA = 1> (x, W2)").format("s = Mul(h, h)"),
         {"W2": np.ones((1, 6), np.float32)}, "transposes its activation"),
        (GEMMS.replace("(x, W, b)", "(x, W, x2)").format("s = Mul(h, h)"), {}, "C of Gemm 'h'"),
        (GEMMS.replace("(x, W, b)", "(x, W, tall)").format("s = Mul(h, h)"),
         {"tall": np.ones((50, 6), np.float32)}, "'tall' of shape (50, 6) is not one value"),
        (GEMMS.format("q = Mul(h, deep) s = Mul(q, q)"),
         {"deep": np.ones((1, 1, 6), np.float32)}, "'deep' has more axes"),
        ("h = MatMul(x, W3) s = Mul(h, h) y = MatMul(s, V4)",
         {"W3": np.ones((1, 3, 6), np.float32), "V4": V.T}, "is not a matrix but (1, 3, 6)"),
        ("h = MatMul(x, x2) s = Mul(h, h) y = MatMul(s, V4)", {"V4": V.T}, "exactly one constant"),
        ("h = Gemm(W, x2) s = Mul(h, h) y = Gemm <transB = 1> (s, V5)",
         {"V5": np.ones((2, 6), np.float32)}, "is its first input"),
        ("h = MatMul(W, x2) s = Mul(h, h) y = MatMul(s, V5)",
         {"V5": np.ones((6, 2), np.float32)}, "features on different axes"),
        (GEMMS.format("f = Flatten <axis = 0> (h) s = Mul(f, f)"), {}, "mixes features"),
        (GEMMS.format("q = Dropout(h, half, yes) s = Mul(q, q)"),
         {"half": np.float32(0.5), "yes": np.array(True)}, "may be in training mode"),
        (GEMMS.format("q, k = Dropout(h, half) s = Mul(q, q) z = Not(k)"),
         {"half": np.float32(0.5)}, "the mask of Dropout 'q' is used"),
        ("h = MatMul(x, I) s = Mul(h, h) y = MatMul(s, I)",
         {"I": np.ones((3, 3), np.int32)}, "not a floating-point tensor"),
    ],
)  # fmt: skip
def test_what_is_no_layer_is_refused_with_a_reason(
    body: str, extra: dict[str, Any], reason: str
) -> None:
    used = {name: a for name, a in WEIGHTS.items() if f" {name}" in body or f"({name}" in body}
    model = build(body, inputs="float[N,3] x, float[3,6] x2", **used, **extra)
    (found,) = refusals(model)
    assert reason in found
    untouched = onnxfde.optimize(model, eps=0, verify=False) if "I" not in extra else None
    if untouched is not None:
        assert untouched.model == model


def test_a_hidden_value_that_is_a_graph_output_is_refused() -> None:
    model = build(GEMMS.format("s = Mul(h, h)"), outputs="float[N,2] y, float[N,6] s", **WEIGHTS)
    assert refusals(model) == ["'s' inside it is an output of the graph"]


@pytest.mark.parametrize("name", ["W", "b", "V", "c"])
def test_a_weight_that_a_caller_may_override_is_refused(name: str) -> None:
    shape = ",".join(map(str, WEIGHTS[name].shape))
    model = build(
        GEMMS.format("s = Mul(h, h)"), inputs=f"float[N,3] x, float[{shape}] {name}", **WEIGHTS
    )
    (reason,) = refusals(model)
    assert f"the weight '{name}' is also a graph input" in reason


def test_a_scale_that_a_caller_may_override_is_refused() -> None:
    body = GEMMS.format("q = Mul(h, k) s = Mul(q, q)")
    model = build(body, inputs="float[N,3] x, float[6] k", **WEIGHTS, k=np.ones(6, np.float32))
    assert "'k' is also a graph input" in refusals(model)[0]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(bad: float) -> None:
    w = W.copy()
    w[0, 0] = bad
    assert refusals(mlp(w, B, V, C)) == ["a weight is NaN or infinite"]


def test_maps_that_do_not_fit_are_refused() -> None:
    model = build(
        "h = MatMul(x, W) f = Flatten(h) s = Mul(f, f) y = MatMul(s, V)",
        inputs="float[1,3] x",
        W=W.T,
        V=np.ones((5, 2), np.float32),
    )
    assert "makes 6 features and the second one reads 5" in refusals(model)[0]


def test_maps_of_different_types_are_refused() -> None:
    model = build(
        "h = MatMul(x, W) s = Mul(h, h) y = MatMul(s, V)", W=W.T, V=V.T.astype(np.float16)
    )
    assert "weights of different types" in refusals(model)[0]


def test_an_unknown_rank_is_refused_where_it_matters() -> None:
    model = build("h = MatMul(W, x) s = Mul(h, h) y = MatMul(V, s)", W=W, V=V)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert "rank of what 'h' multiplies from the left is not known" in refusals(model)[0]
    model = build("h = MatMul(x, W) f = Flatten(h) s = Mul(f, f) y = MatMul(s, V)", W=W.T, V=V.T)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert "rank of what Flatten 'f' reads is not known" in refusals(model)[0]


def test_a_flatten_between_maps_on_the_left_is_refused() -> None:
    model = build(
        "h = MatMul(W, x) f = Flatten <axis = 1> (h) s = Mul(f, f) y = MatMul(V, s)",
        inputs="float[3,1] x",
        outputs="float[2,1] y",
        W=W,
        V=V,
    )
    assert "mixes features" in refusals(model)[0]


def test_squares_in_bodies_and_functions_are_named() -> None:
    body = onnx.parser.parse_graph("b () => (float[N,3] t) { t = Mul(x, x) }")
    other = onnx.parser.parse_graph("e () => (float[N,3] t) { t = Identity(x) }")
    model = build("y = Identity(x)", inputs="float[N,3] x, bool yes", outputs="float[N,3] y")
    node = helper.make_node("If", ["yes"], ["z"], "choice", then_branch=body, else_branch=other)
    model.graph.node.append(node)
    function = onnx.parser.parse_function(
        '<opset_import: ["": 17], domain: "own"> f (a) => (r) { r = Mul(a, a) }'
    )
    model.functions.append(function)
    reasons = refusals(model)
    assert "lies in a body of If 'choice'" in reasons[0]
    assert "lies in the local function 'f'" in reasons[1]


def test_a_value_read_inside_a_body_counts_as_used() -> None:
    body = onnx.parser.parse_graph("b () => (float[N,6] t) { t = Identity(h) }")
    model = build(GEMMS.format("s = Mul(h, h)"), inputs="float[N,3] x, bool yes", **WEIGHTS)
    model.graph.node.append(
        helper.make_node("If", ["yes"], ["z"], "choice", then_branch=body, else_branch=body)
    )
    assert refusals(model) == ["'h' inside it is used by 2 nodes"]


@pytest.mark.parametrize(("attribute", "found"), [("", False), ("<is_test = 1>", True)])
def test_an_old_dropout_is_transparent_only_in_test_mode(attribute: str, found: bool) -> None:
    model = build(GEMMS.format(f"q = Dropout {attribute} (h) s = Mul(q, q)"), opset=6, **WEIGHTS)
    assert bool(find_layers(Graph(model))[0]) == found


def test_constants_of_other_kinds_are_read() -> None:
    model = build(
        "two = Constant <value_float = 2.0> () h = Gemm <transB = 1> (x, W, b) s = Pow(h, two) "
        "y = Gemm <transB = 1> (s, V, c)",
        **WEIGHTS,
    )
    assert len(find_layers(Graph(model))[0]) == 1
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.ones(1, np.float32), "v"),
        numpy_helper.from_array(np.zeros(1, np.int64), "i"),
        [6],
    )
    assert not Graph(with_constant(sparse)).is_constant("k")


def with_constant(sparse: Any) -> ModelProto:
    model = build("y = Identity(x)", outputs="float[N,3] y")
    model.graph.node.append(helper.make_node("Constant", [], ["k"], sparse_value=sparse))
    return model


def test_a_dropout_mask_that_is_a_graph_output_is_refused() -> None:
    body = GEMMS.format("q, mask = Dropout(h) s = Mul(q, q)")
    model = build(body, outputs="float[N,2] y, bool[N,6] mask", **WEIGHTS)
    assert refusals(model) == ["the mask of Dropout 'q' is used"]


def test_numbered_names_do_not_collide_with_given_ones() -> None:
    layer = (
        "h{0} = Gemm <transB = 1> (x, W, b) s{0} = Mul(h{0}, h{0}) "
        "y{0} = Gemm <transB = 1> (s{0}, V, c) "
    )
    body = "".join(layer.format(i) for i in range(3))
    model = build(body, outputs="float[N,2] y0, float[N,2] y1, float[N,2] y2", **WEIGHTS)
    for i, name in enumerate(["A", "A", "A#2"]):
        model.graph.node[3 * i].name = name
    assert [m.name for m in find_layers(Graph(model))[0]] == ["A", "A#3", "A#2"]


def test_an_add_of_another_domain_is_no_bias() -> None:
    model = build(
        "h = MatMul(x, W) s = Mul(h, h) d = MatMul(s, V) y = Add(d, c)", W=W.T, V=V.T, c=C
    )
    model.graph.node[3].domain = "own"
    (match,), _ = find_layers(Graph(model))
    assert match.outgoing.carrier is None


def test_old_broadcasting_rules_are_not_guessed() -> None:
    model = build("h = MatMul(x, W) s = Mul(h, h) y = MatMul(s, V)", opset=6, W=W.T, V=V.T)
    assert "opset 6 broadcasts by other rules" in refusals(model)[0]


def test_a_power_of_two_inside_a_body_is_named() -> None:
    model = build(
        "y = If(k) <then_branch = a () => (float[N,3] y1) { y1 = Pow(x, two) }, "
        "else_branch = e () => (float[N,3] y2) { y2 = Identity(x) }>",
        inputs="float[N,3] x, bool k",
        outputs="float[N,3] y",
        two=np.float32(2),
    )
    assert "lies in a body of If 'y'" in refusals(model)[0]
