"""The small models that are mutated: square networks in every spelling, and odd kinds of model.

Each is written as the text of its graph and its arrays. Together they have every way to store a
weight (inside, in data files, sparse, as a node, as an input), every kind of body (If, Loop, Scan,
local functions) and the types that most tools forget.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxfde.numbers import Array

RNG = np.random.default_rng(0)
KINDS: dict[str, Any] = {
    "float": np.float32,
    "float16": np.float16,
    "double": np.float64,
    "bfloat16": ml_dtypes.bfloat16,
}
ROWS = 120
"""Rows in the data file of a model: enough for a part to be kept for the verdict."""
GEMMS = "[first] h = Gemm <transB = 1> (x, W, b) {} [second] y = Gemm <transB = 1> (s, V, c)"


@dataclass(frozen=True, eq=False)
class Base:
    """A model to mutate, with the files that it reads and data for its inputs."""

    name: str
    model: onnx.ModelProto
    files: dict[str, bytes] = field(default_factory=dict)
    rows: dict[str, Array] = field(default_factory=dict)

    @property
    def data(self) -> bytes:
        """The data file for this model's inputs."""
        stream = io.BytesIO()
        np.savez(stream, **self.rows)  # type: ignore[arg-type]
        return stream.getvalue()


def doubled(*shape: int) -> Array:
    """Random values in which the second half of the first axis repeats the first half."""
    half = RNG.normal(size=(shape[0] // 2, *shape[1:]))
    return np.concatenate([half, half])


WEIGHTS: dict[str, Array] = {
    "W": doubled(6, 3), "b": doubled(6), "V": RNG.normal(size=(2, 6)), "c": RNG.normal(size=2),
    "W2": 0.3 * doubled(6, 2), "V2": RNG.normal(size=(2, 6)), "WT": doubled(6, 3).T,
    "VT": RNG.normal(size=(6, 2)), "k": np.abs(doubled(6)) + 0.5, "l": doubled(6),
    "half": np.array(0.5), "one": np.array(1.0), "two": np.array(2.0), "twos": np.full(6, 2.0),
    "tiny": np.array(1e-4), "K": doubled(6, 2, 1, 1), "K3": doubled(4, 2, 3, 3),
    "KV": RNG.normal(size=(2, 6, 1, 1)), "F": RNG.normal(size=(2, 64)), "WL": doubled(24, 16),
    "bL": doubled(24), "VL": RNG.normal(size=(16, 24)),
}  # fmt: skip


def parsed(
    body: str,
    inputs: str = "float[N,3] x",
    outputs: str = "float[N,2] y",
    kind: str = "float",
    opset: int = 17,
    more: str = "",
    **arrays: Any,
) -> onnx.ModelProto:
    """A model from the text of its nodes, with the weights that they name."""
    domains = f'"": {opset}{more}'
    head = f"<ir_version: {10 if opset > 20 else 9}, opset_import: [{domains}]>"
    model = onnx.parser.parse_model(f"{head} g ({inputs}) => ({outputs}) {{ {body} }}")
    words = set("".join(c if c.isalnum() else " " for c in body).split())
    cast = {n: a.astype(KINDS[kind]) for n, a in WEIGHTS.items() if n in words} | arrays
    tensors = (numpy_helper.from_array(np.asarray(a, order="C"), n) for n, a in cast.items())
    model.graph.initializer.extend(tensors)
    return model


NORMALIZED = "n = BatchNormalization(h, k, l, l, k)"
SPELLINGS = {
    "mul": "s = Mul(h, h)",
    "pow": "s = Pow(h, two)",
    "pow-vector": "s = Pow(h, twos)",
    "square-plus": "q = Mul(h, h) s = Add(q, h)",
    "product": "q = Add(h, one) s = Mul(h, q)",
    "horner": "p = Mul(half, h) q = Add(p, two) r = Mul(q, h) s = Add(r, one)",
    "per-feature": "q = Mul(h, h) p = Mul(q, k) r = Mul(l, h) t = Sub(p, r) s = Sub(l, t)",
    "neg-div": "n = Neg(h) q = Mul(n, h) d = Div(q, two) s = Sub(h, d)",
    "sum": "q = Mul(h, h) s = Sum(q, h, k)",
    "dropout": "i = Identity(h) q = Mul(i, h) d = Dropout(q) s = Add(d, i)",
    "batchnorm": f"{NORMALIZED} q = Mul(n, n) s = BatchNormalization(q, k, l, l, k)",
    "tiny": "q = Mul(h, h) p = Mul(q, tiny) s = Add(p, h)",
    "relu": "s = Relu(h)",
    "sigmoid": "s = Sigmoid(h)",
    "clip": "q = Mul(h, h) s = Clip(q, half, two)",
    "normalization": "q = Mul(h, h) m = ReduceMean <axes = [1]> (q) s = Div(q, m)",
}
"""From h to s, between two Gemms."""

WHOLE: dict[str, tuple[str, dict[str, Any]]] = {
    "matmul": ("p = MatMul(x, WT) h = Add(p, b) s = Mul(h, h) q = MatMul(s, VT) y = Add(q, c)", {}),
    "no-bias": ("h = MatMul(x, WT) s = Mul(h, h) y = MatMul(s, VT)", {}),
    "rank3": (
        "p = MatMul(x, WT) h = Add(b, p) s = Mul(h, h) y = MatMul(s, VT)",
        {"inputs": "float[N,4,3] x", "outputs": "float[N,4,2] y"},
    ),
    "columns": (
        "h = MatMul(W, x) s = Mul(h, h) y = MatMul(V, s)",
        {"inputs": "float[N,3,2] x", "outputs": "float[N,2,2] y"},
    ),
    "conv": (
        "h = Conv(x, K, b) s = Mul(h, h) y = Conv(s, KV, c)",
        {"inputs": "float[N,2,4,4] x", "outputs": "float[N,2,4,4] y"},
    ),
    "conv-flat": (
        "h = Conv <pads = [1, 1, 1, 1]> (x, K3) s = Mul(h, h) f = Flatten(s) "
        "y = Gemm <transB = 1> (f, F, c)",
        {"inputs": "float[N,2,4,4] x"},
    ),
    "two-layers": (
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) m = Gemm <transB = 1> (s, V, c) "
        "i = Gemm <transB = 1> (m, W2, b) t = Mul(i, i) y = Gemm <transB = 1> (t, V2, c)",
        {},
    ),
    "residual": (
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) m = Gemm <transB = 1> (s, V, c) "
        "i = Gemm <transB = 1> (m, W2, b) t = Mul(i, i) n = Gemm <transB = 1> (t, V2, c) "
        "y = Add(m, n)",
        {},
    ),
    "two-outputs": (
        GEMMS.format("s = Mul(h, h)") + " z = Softmax(y) a = ArgMax <axis = 1> (z)",
        {"outputs": "float[N,2] y, float[N,2] z, int64[N,1] a"},
    ),
    "fold": ("h = Gemm <transB = 1> (x, W, b) y = Gemm <transB = 1> (h, V, c)", {}),
    "fold-scales": ("m = MatMul(x, WT) a = Add(m, b) d = Div(a, k) y = MatMul(d, VT)", {}),
    "fixed-batch": (
        GEMMS.format("s = Mul(h, h)"),
        {"inputs": "float[4,3] x", "outputs": "float[4,2] y"},
    ),
    "two-batches": (
        GEMMS.format("s = Mul(h, h)") + " w = Identity(z)",
        {"inputs": "float[4,3] x, float[3,2] z", "outputs": "float[4,2] y, float[3,2] w"},
    ),
    "static-batch-1": (
        GEMMS.format("s = Mul(h, h)"),
        {"inputs": "float[1,3] x", "outputs": "float[1,2] y"},
    ),
    "gather": (
        "x = Gather(T, i) h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) "
        "y = Gemm <transB = 1> (s, V, c)",
        {"inputs": "int64[N] i", "T": np.ones((5, 3), np.float32)},
    ),
    "where": (
        GEMMS.format("s = Mul(h, h)") + " w = Where(m, y, c)",
        {"inputs": "float[N,3] x, bool[N,2] m", "outputs": "float[N,2] w"},
    ),
    "reshape": (
        "r = Reshape(x, shape) h = Gemm <transB = 1> (r, W, b) s = Mul(h, h) "
        "y = Gemm <transB = 1> (s, V, c)",
        {"inputs": "float[N,1,3] x", "shape": np.array([-1, 3])},
    ),
    "dynamic-reshape": (
        GEMMS.format("s = Mul(h, h)") + " n = Shape(y) f = Reshape(y, n) t = Transpose(f)",
        {"outputs": "float[2,N] t"},
    ),
    "sequence": (
        GEMMS.format("s = Mul(h, h)") + " q = SequenceConstruct(y, s)",
        {"outputs": "seq(float[]) q"},
    ),
    "split-sequence": (
        GEMMS.format("s = Mul(h, h)") + " q = SplitToSequence <axis = 1> (y)",
        {"outputs": "seq(float[N,1]) q"},
    ),
    "sequence-input": ("y = SequenceAt(q, n)", {"inputs": "seq(float[N,2]) q, int64 n"}),
    "optional": (
        GEMMS.format("s = Mul(h, h)") + " o = Optional(y)",
        {"outputs": "optional(float[N,2]) o"},
    ),
    "string": (
        GEMMS.format("s = Mul(h, h)") + " t = Identity(words)",
        {"inputs": "float[N,3] x, string[N] words", "outputs": "float[N,2] y, string[N] t"},
    ),
    "complex": (
        GEMMS.format("s = Mul(h, h)") + " w = Identity(z)",
        {"inputs": "float[N,3] x, complex64[N] z", "outputs": "float[N,2] y, complex64[N] w"},
    ),
    "integers": (
        "p = Mul(i, i) q = Add(p, i)",
        {"inputs": "int32[N,3] i", "outputs": "int32[N,3] q"},
    ),
    "custom-domain": (
        "u = my.Unknown(x) h = Gemm <transB = 1> (u, W, b) s = Mul(h, h) "
        "y = Gemm <transB = 1> (s, V, c)",
        {"more": ', "my": 1'},
    ),
    "scaler": (
        "u = ai.onnx.ml.Scaler <offset = [0.5], scale = [2.0]> (x) "
        "h = Gemm <transB = 1> (u, W, b) s = Mul(h, h) y = Gemm <transB = 1> (s, V, c)",
        {"more": ', "ai.onnx.ml": 3'},
    ),
    "constant-nodes": (
        "v = Constant <value_floats = [1.0, 2.0]> () e = Constant <value_float = 2.0> () "
        "h = Gemm <transB = 1> (x, W, b) s = Pow(h, e) y = Gemm <transB = 1> (s, V, v)",
        {},
    ),
    "no-inputs": (
        "x = Constant <value = float[1,3] {1, 2, 3}> () h = Gemm <transB = 1> (x, W, b) "
        "s = Mul(h, h) y = Gemm <transB = 1> (s, V, c)",
        {"inputs": ""},
    ),
    "random": (
        GEMMS.format("r = RandomNormalLike(h) t = Add(h, r) s = Mul(t, t)"),
        {},
    ),
    "if": (
        "t = ReduceSum <keepdims = 0> (x) p = Cast <to = 9> (t) "
        "y = If (p) <then_branch = a () => (float[N,2] m) "
        "{ h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) m = Gemm <transB = 1> (s, V, c) }, "
        "else_branch = e () => (float[N,2] n) { n = MatMul(x, D) }>",
        {"D": np.ones((3, 2), np.float32)},
    ),
    "loop": (
        GEMMS.format("s = Mul(h, h)").replace("y =", "v =")
        + " y = Loop (trips, go, v) <body = l (int64 i, bool p, float[N,2] a) => "
        "(bool q, float[N,2] b2) { q = Identity(p) b2 = Mul(a, a) }>",
        {"trips": np.array(3), "go": np.array(True)},
    ),
    "scan": (
        GEMMS.format("s = Mul(h, h)") + " last, all = Scan <num_scan_inputs = 1, body = f "
        "(float[2] a, float[2] r) => (float[2] o, float[2] u) { o = Add(a, r) u = Mul(o, o) }> "
        "(c, y)",
        {"outputs": "float[2] last, float[N,2] all"},
    ),
}  # fmt: skip
"""The text of whole graphs, and what `parsed` needs besides."""

FUNCTION = """<ir_version: 9, opset_import: ["": 17, "local": 1]>
g (float[N,3] x) => (float[N,2] y)
{ h = Gemm <transB = 1> (x, W, b) s = local.Square (h) y = Gemm <transB = 1> (s, V, c) }
<opset_import: ["": 17], domain: "local"> Square (a) => (q) { q = Mul (a, a) }"""


def spelled() -> Iterator[Base]:
    """Square networks between two Gemms, and whole graphs."""
    for name, body in SPELLINGS.items():
        yield based(name, parsed(GEMMS.format(body)))
    for kind in ("float16", "double", "bfloat16"):
        ports: dict[str, Any] = {"inputs": f"{kind}[N,3] x", "outputs": f"{kind}[N,2] y"}
        yield based(kind, parsed(GEMMS.format(SPELLINGS["square-plus"]), kind=kind, **ports))
    for name, (body, more) in WHOLE.items():
        yield based(name, parsed(body, **more))


def stored() -> Iterator[Base]:
    """Models that store their weights in other ways, or have functions and old versions."""
    function = onnx.parser.parse_model(FUNCTION)
    names = ("W", "b", "V", "c")
    plain = parsed(GEMMS.format(SPELLINGS["mul"]))
    function.graph.initializer.extend(t for t in plain.graph.initializer if t.name in names)
    yield based("function", function)
    as_inputs = parsed(GEMMS.format(SPELLINGS["mul"]))
    for tensor in as_inputs.graph.initializer:
        value = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        as_inputs.graph.input.append(value)
    yield based("initializers-as-inputs", as_inputs)
    old = parsed(GEMMS.format(SPELLINGS["mul"]), opset=8)
    old.ir_version = 3
    old.graph.input.extend(as_inputs.graph.input[1:])
    yield based("old", old)
    yield based("new", parsed(GEMMS.format(SPELLINGS["mul"]), opset=22))
    yield based("sparse", sparse())
    yield based("quantized", quantized())
    yield based("int4", four_bits())


def sparse() -> onnx.ModelProto:
    """A network whose second weight is a sparse initializer."""
    model = parsed(GEMMS.format(SPELLINGS["mul"]))
    old = next(t for t in model.graph.initializer if t.name == "V")
    model.graph.initializer.remove(old)
    values = helper.make_tensor("V", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    places = helper.make_tensor("V_places", TensorProto.INT64, [3], [0, 5, 7])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [2, 6]))
    return model


def quantized() -> onnx.ModelProto:
    """A network whose first weight is dequantized, and whose values are rounded to 8 bits."""
    body = (
        "w = DequantizeLinear(W8, scale) q = QuantizeLinear(x, scale) r = DequantizeLinear(q, "
        "scale) h = Gemm <transB = 1> (r, w, b) s = Mul(h, h) y = Gemm <transB = 1> (s, V, c)"
    )
    whole = np.round(doubled(6, 3) * 20).astype(np.int8)
    return parsed(body, W8=whole, scale=np.array(0.05, np.float32))


def four_bits() -> onnx.ModelProto:
    """A network whose first weight is stored in 4 bits."""
    body = (
        "w = DequantizeLinear(W4, scale) h = Gemm <transB = 1> (x, w, b) s = Mul(h, h) "
        "y = Gemm <transB = 1> (s, V, c)"
    )
    model = parsed(body, opset=21, scale=np.array(0.5, np.float32))
    values = np.clip(np.round(doubled(6, 3) * 2), -8, 7).astype(ml_dtypes.int4)
    model.graph.initializer.append(numpy_helper.from_array(values, "W4"))
    return model


def external() -> Iterator[Base]:
    """Models with data files: one, two, one in a folder, and one large enough to matter."""
    places = {
        "external": lambda name: "w.data",
        "external-two": lambda name: "a.data" if name in "Wb" else "b.data",
        "external-folder": lambda name: "deep/w.data",
    }
    for name, place in places.items():
        yield moved_out(name, parsed(GEMMS.format(SPELLINGS["mul"])), place)
    body = "h = Gemm <transB = 1> (x, WL, bL) s = Mul(h, h) y = Gemm <transB = 1> (s, VL)"
    ports: dict[str, Any] = {"inputs": "float[N,16] x", "outputs": "float[N,16] y"}
    yield moved_out("external-large", parsed(body, **ports), lambda name: "w.data")
    unmergeable = parsed(GEMMS.format(SPELLINGS["relu"]))
    yield moved_out("external-relu", unmergeable, lambda name: "in.onnx.data")


def moved_out(name: str, model: onnx.ModelProto, place: Any) -> Base:
    """A model whose tensors lie in data files."""
    files: dict[str, bytes] = {}
    for tensor in model.graph.initializer:
        location, raw = place(tensor.name), tensor.raw_data
        before = files.get(location, b"")
        entries = {"location": location, "offset": str(len(before)), "length": str(len(raw))}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        files[location] = before + raw
    return based(name, model, files)


def based(name: str, model: onnx.ModelProto, files: dict[str, bytes] | None = None) -> Base:
    """A model with rows for those of its inputs that are tensors of numbers."""
    rows: dict[str, Array] = {}
    initial = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        kind = value.type.tensor_type
        if value.name in initial or kind.elem_type in (0, TensorProto.STRING):
            continue
        lengths = [d.dim_value or 2 for d in kind.shape.dim[1:]]
        array = np.random.default_rng(1).uniform(0, 1, (ROWS, *lengths))
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        wide = np.float32 if kind.elem_type == TensorProto.BFLOAT16 else dtype
        rows[value.name] = array.astype(wide)
    rows["y"] = np.zeros(ROWS, np.int64)
    return Base(name, model, files or {}, rows)


@functools.cache
def bases() -> dict[str, Base]:
    """All models by name."""
    return {base.name: base for base in (*spelled(), *stored(), *external())}
