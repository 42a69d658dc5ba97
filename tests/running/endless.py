"""Models whose runs do not end, or take more memory than any machine has."""

from __future__ import annotations

import onnx
from onnx import TensorProto
from onnx.helper import make_graph, make_node, make_tensor, make_tensor_value_info

from onnxfde.graph.protos import GraphProto, ModelProto
from tests.models import build, twins

W, B, V, C = twins()
SQUARE = "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) y = Gemm <transB = 1> (s, V, c) "
HUGE = {
    "constant of shape": "k = Constant <value = int64[1] {8589934592}> () z = ConstantOfShape(k)",
    "range": "k = Constant <value = float {0.0}> () l = Constant <value = float {8589934592.0}> () "
    "m = Constant <value = float {1.0}> () z = Range(k, l, m)",
    "expand": "k = Constant <value = int64[2] {4294967296, 2}> () "
    "l = Constant <value = float {1.0}> () z = Expand(l, k)",
    "expand what is computed": "k = Constant <value = int64[1] {8589934592}> () "
    "l = ReduceMax <keepdims = 0> (x) z = Expand(l, k)",
}
"""Values of 2³³ numbers."""
UNFORESEEN = (
    "l = Abs(x) m = ReduceMax <keepdims = 0> (l) k = Constant <value = float {1e11}> () "
    "n = Mul(m, k) p = Constant <value = float {0.0}> () q = Constant <value = float {1.0}> () "
    "z = Range(p, n, q)"
)
"""A value whose size is known only while the model runs."""


def with_side_branch(branch: str) -> ModelProto:
    """A layer with twins, and a branch that makes a value `z`."""
    body = f"{SQUARE} {branch} t = ReduceSum <keepdims = 0> (z)"
    return build(body, outputs="float[N,2] y, float t", W=W, b=B, V=V, c=C)


def endless_body(level: int, inner: GraphProto | None) -> GraphProto:
    """The body of a loop that goes on for ever, perhaps around another loop."""
    names = [f"{name}{level}" for name in ("number", "go", "value", "on", "kept")]
    number, go, value, on, kept = names
    step = (
        make_node("Identity", [value], [kept])
        if inner is None
        else make_node("Loop", ["", go, value], [kept], body=inner)
    )
    return make_graph(
        [make_node("Identity", [go], [on]), step],
        f"body{level}",
        [
            make_tensor_value_info(number, TensorProto.INT64, []),
            make_tensor_value_info(go, TensorProto.BOOL, []),
            make_tensor_value_info(value, TensorProto.FLOAT, None),
        ],
        [
            make_tensor_value_info(on, TensorProto.BOOL, []),
            make_tensor_value_info(kept, TensorProto.FLOAT, None),
        ],
    )


def endless(levels: int = 1, upstream: bool = False) -> ModelProto:
    """A layer with twins and an endless loop, beside it or before it."""
    model = build(SQUARE, W=W, b=B, V=V, c=C)
    body = None
    for level in range(levels):
        body = endless_body(level, body)
    true = make_tensor("true", TensorProto.BOOL, [], [True])
    loop = make_node("Loop", ["", "true", "x"], ["looped"], body=body)
    nodes = [make_node("Constant", [], ["true"], value=true), loop, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    if upstream:
        next(n for n in model.graph.node if n.op_type == "Gemm").input[0] = "looped"
    else:
        looped = make_tensor_value_info("looped", TensorProto.FLOAT, ("N", 3))
        model.graph.output.append(looped)
    onnx.checker.check_model(model)
    return model
