"""Models that are wrong in one place, hold extreme numbers, or ask for too much memory or time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

from benchmarks.fuzz.bases import (
    GEMMS,
    SPELLINGS,
    WHOLE,
    Base,
    bases,
    parsed,
)
from benchmarks.fuzz.trap_words import ROWS

USUAL = (
    "optimize in.onnx out.onnx --eps 0",
    "optimize in.onnx in.onnx --no-verify --json report.json",
    "inspect in.onnx --json -",
    "verify in.onnx base.onnx --tolerance 0.1",
)
NUMERIC = (
    "optimize in.onnx out.onnx --eps 0",
    "optimize in.onnx out.onnx",
    "optimize in.onnx out.onnx --data rows.npz --certify",
    "optimize in.onnx out.onnx --semantics paper",
    "optimize in.onnx out.onnx --int8 dynamic",
    "inspect in.onnx --json -",
)
"""Command lines for extreme numbers."""
MUL = SPELLINGS["mul"]
Trap = tuple[str, ModelProto | bytes | Base, tuple[str, ...]]
Edit = Callable[[ModelProto], object]


def edited(edit: Edit, body: str = MUL) -> ModelProto:
    """A square network after a change."""
    model = parsed(GEMMS.format(body))
    edit(model)
    return model


def tensor(model: ModelProto, name: str) -> TensorProto:
    """A stored tensor by name."""
    return next(t for t in model.graph.initializer if t.name == name)


def first_input(model: ModelProto) -> ValueInfoProto:
    """The first input of a model."""
    return model.graph.input[0]


def moved(model: ModelProto, entries: dict[str, str]) -> None:
    """Put the tensor W into a data file."""
    found = tensor(model, "W")
    found.data_location = TensorProto.EXTERNAL
    del found.external_data[:]
    for key, value in entries.items():
        found.external_data.add(key=key, value=value)


EXTERNAL: dict[str, dict[str, str]] = {
    "no-length": {"location": "w.data", "offset": "0"},
    "offset-no-length": {"location": "w.data", "offset": "24"},
    "short-length": {"location": "w.data", "length": "8"},
    "odd-length": {"location": "w.data", "length": "71"},
    "long-length": {"location": "w.data", "length": "9999999"},
    "length-zero": {"location": "w.data", "length": "0"},
    "far-offset": {"location": "w.data", "offset": "9999999"},
    "negative-offset": {"location": "w.data", "offset": "-4"},
    "digits": {"location": "w.data", "offset": "9" * 5000},
    "length-digits": {"location": "w.data", "length": "9" * 5000},
    "arabic-digits": {"location": "w.data", "offset": "٣"},
    "no-location": {"offset": "0"},
    "empty-location": {"location": ""},
    "nul-location": {"location": "w\0.data"},
    "long-location": {"location": "a" * 5000},
    "long-name": {"location": "a" * 300},
    "deep-location": {"location": "a/" * 2000 + "w.data"},
    "own-model": {"location": "in.onnx", "length": "72"},
    "outside": {"location": "../outside.data"},
    "folder": {"location": "."},
    "missing": {"location": "missing.data"},
    "newline": {"location": "a\nb"},
}


def external_traps() -> Iterator[Trap]:
    """Data files at wrong places."""
    for name, entries in EXTERNAL.items():
        model = edited(partial(moved, entries=entries))
        yield f"place-{name}", Base("", model, {"w.data": b"\1\0\0\0" * 40}, ROWS), ()


def rename_nodes(model: ModelProto, name: str) -> None:
    """Give all nodes one name."""
    for node in model.graph.node:
        node.name = name


EXTREMES = {"float": (1e38, 1e18, 1e-38, np.nan), "double": (1e300, 1e160, 1e-300)}
"""Factors of weights, by type."""
EDITS: dict[str, Edit] = {
    "elem-type-0": lambda m: first_input(m).type.tensor_type.ClearField("elem_type"),
    "elem-type-99": lambda m: setattr(first_input(m).type.tensor_type, "elem_type", 99),
    "output-type-99": lambda m: setattr(m.graph.output[0].type.tensor_type, "elem_type", 99),
    "no-type": lambda m: first_input(m).ClearField("type"),
    "no-shape": lambda m: first_input(m).type.tensor_type.ClearField("shape"),
    "data-type-77": lambda m: setattr(tensor(m, "W"), "data_type", 77),
    "data-type-0": lambda m: tensor(m, "W").ClearField("data_type"),
    "data-type-string": lambda m: setattr(tensor(m, "W"), "data_type", TensorProto.STRING),
    "raw-too-long": lambda m: setattr(tensor(m, "W"), "raw_data", b"\0" * 5000),
    "raw-too-short": lambda m: setattr(tensor(m, "W"), "raw_data", b"\0" * 5),
    "no-raw": lambda m: tensor(m, "W").ClearField("raw_data"),
    "negative-dims": lambda m: tensor(m, "W").dims.append(-1),
    "huge-dims": lambda m: tensor(m, "W").dims.extend([2**31, 2**31, 2**31]),
    "zero-dims": lambda m: tensor(m, "b").dims.append(0),
    "constant-without-value": lambda m: m.graph.node.add(op_type="Constant", output=["k0"]),
    "no-op-type": lambda m: m.graph.node[1].ClearField("op_type"),
    "no-inputs-of-node": lambda m: m.graph.node[1].ClearField("input"),
    "no-outputs-of-node": lambda m: m.graph.node[1].ClearField("output"),
    "no-nodes": lambda m: m.graph.ClearField("node"),
    "no-outputs": lambda m: m.graph.ClearField("output"),
    "no-graph": lambda m: m.ClearField("graph"),
    "no-opset": lambda m: m.ClearField("opset_import"),
    "opset-10⁹": lambda m: setattr(m.opset_import[0], "version", 10**9),
    "opset-0": lambda m: setattr(m.opset_import[0], "version", 0),
    "opset-1": lambda m: setattr(m.opset_import[0], "version", 1),
    "ir-0": lambda m: setattr(m, "ir_version", 0),
    "ir-3": lambda m: setattr(m, "ir_version", 3),
    "ir-100": lambda m: setattr(m, "ir_version", 100),
    "ir-huge": lambda m: setattr(m, "ir_version", 2**63 - 1),
    "cycle": lambda m: m.graph.node[0].input.__setitem__(0, "y"),
    "own-result": lambda m: m.graph.node[1].input.__setitem__(0, "s"),
    "undefined-input": lambda m: m.graph.node[0].input.__setitem__(0, "nowhere"),
    "made-twice": lambda m: m.graph.node[1].output.__setitem__(0, "h"),
    "output-is-input": lambda m: m.graph.output.add().CopyFrom(first_input(m)),
    "output-is-weight": lambda m: m.graph.output.add(name="W").type.CopyFrom(first_input(m).type),
    "input-twice": lambda m: m.graph.input.add().CopyFrom(first_input(m)),
    "weight-twice": lambda m: m.graph.initializer.add().CopyFrom(tensor(m, "W")),
    "ref-attribute": lambda m: (
        m.graph.node[0].attribute[0].MergeFrom(AttributeProto(ref_attr_name="somewhere"))
    ),
    "attribute-of-wrong-type": lambda m: (
        m.graph.node[0].attribute[0].MergeFrom(AttributeProto(type=AttributeProto.STRINGS))
    ),
    "attribute-without-type": lambda m: m.graph.node[0].attribute[0].ClearField("type"),
    "sparse-attribute": lambda m: m.graph.node.add(
        op_type="Constant", output=["k0"], attribute=[AttributeProto(name="sparse_value")]
    ),
    "batch-minus-1": lambda m: setattr(
        first_input(m).type.tensor_type.shape.dim[0], "dim_value", -1
    ),
    "feature-minus-1": lambda m: setattr(
        first_input(m).type.tensor_type.shape.dim[1], "dim_value", -1
    ),
    "batch-0": lambda m: setattr(first_input(m).type.tensor_type.shape.dim[0], "dim_value", 0),
    "other-dtype-as-input": lambda m: m.graph.input.append(
        helper.make_tensor_value_info("W", TensorProto.INT64, [6, 3])
    ),
    "other-shape-as-input": lambda m: m.graph.input.append(
        helper.make_tensor_value_info("W", TensorProto.FLOAT, [1])
    ),
    "map-input": lambda m: first_input(m).type.map_type.SetInParent(),
    "opaque-input": lambda m: first_input(m).type.sequence_type.SetInParent(),
    "sparse-input": lambda m: first_input(m).type.sparse_tensor_type.SetInParent(),
    "name-of-300": lambda m: setattr(m.graph.node[0], "name", "a" * 300),
    "name-of-a-million": lambda m: setattr(m.graph.node[0], "name", "a" * 10**6),
    "name-with-newline": lambda m: setattr(m.graph.node[0], "name", "a\nb"),
    "name-with-markup": lambda m: setattr(m.graph.node[0], "name", "[bold]a[/x]\x1b[2J"),
    "no-names": lambda m: rename_nodes(m, ""),
    "equal-names": lambda m: rename_nodes(m, "a"),
    "long-doc": lambda m: setattr(m, "doc_string", "a" * 10**6),
    "metadata-twice": lambda m: [m.metadata_props.add(key="onnxfde", value="{") for _ in "ab"],
}
"""One change each to a square network."""


def text_traps() -> Iterator[Trap]:
    """Texts that are not UTF-8, at every place that holds a text."""
    mark = "QQQQ"
    places: dict[str, Edit] = {
        "node": lambda m: setattr(m.graph.node[0], "name", mark),
        "operator": lambda m: setattr(m.graph.node[1], "op_type", mark),
        "domain": lambda m: setattr(m.graph.node[1], "domain", mark),
        "weight": lambda m: setattr(tensor(m, "W"), "name", mark),
        "graph": lambda m: setattr(m.graph, "name", mark),
        "input": lambda m: setattr(first_input(m), "name", mark),
        "output": lambda m: setattr(m.graph.output[0], "name", mark),
        "value": lambda m: m.graph.node[1].output.__setitem__(0, mark),
        "axis": lambda m: setattr(
            first_input(m).type.tensor_type.shape.dim[0], "dim_param", mark
        ),
        "attribute": lambda m: setattr(m.graph.node[0].attribute[0], "name", mark),
        "doc": lambda m: setattr(m, "doc_string", mark),
        "producer": lambda m: setattr(m, "producer_name", mark),
        "metadata": lambda m: m.metadata_props.add(key=mark, value=mark),
        "opset": lambda m: setattr(m.opset_import.add(version=1), "domain", mark),
        "location": lambda m: moved(m, {"location": mark}),
    }  # fmt: skip
    for name, edit in places.items():
        raw = edited(edit).SerializeToString()
        yield f"not-utf8-{name}", raw.replace(mark.encode(), b"\xff\xfe\x80Q"), ()


def numeric_traps() -> Iterator[Trap]:
    """Extreme numbers in each weight."""
    for kind, values in EXTREMES.items():
        ports: dict[str, Any] = {"inputs": f"{kind}[N,3] x", "outputs": f"{kind}[N,2] y"}
        for value in values:
            for name in ("W", "b", "V", "c"):
                model = parsed(GEMMS.format(MUL), kind=kind, **ports)
                scale_tensor(model, name, value)
                lines = NUMERIC if name in "WV" else NUMERIC[:2]
                yield f"{kind}-{name}-{value:g}", model, lines
    for value in (1e18, 1e30):
        model = parsed(GEMMS.format(MUL))
        for name in ("W", "V"):
            scale_tensor(model, name, value)
        yield f"all-times-{value:g}", model, NUMERIC
    for body in ("square-plus", "batchnorm", "per-feature"):
        model = parsed(GEMMS.format(SPELLINGS[body]))
        for name in {"W", "k", "l"} & {t.name for t in model.graph.initializer}:
            scale_tensor(model, name, 1e30)
        yield f"{body}-huge", model, NUMERIC


def scale_tensor(model: ModelProto, name: str, factor: float) -> None:
    """Multiply the numbers of a stored tensor."""
    found = tensor(model, name)
    values = numpy_helper.to_array(found)
    with np.errstate(all="ignore"):
        found.CopyFrom(numpy_helper.from_array((values * factor).astype(values.dtype), name))


def recursive(body: str) -> ModelProto:
    """A local function that calls itself, or two that call each other."""
    model = ModelProto()
    model.CopyFrom(bases()["function"].model)
    model.functions[0].node[0].op_type, model.functions[0].node[0].domain = body, "local"
    del model.functions[0].node[0].input[1:]
    model.functions[0].opset_import.add(domain="local", version=1)
    if body != "Square":
        other = model.functions.add()
        other.CopyFrom(model.functions[0])
        other.name, other.node[0].op_type = body, "Square"
    return model


def odd_models() -> Iterator[Trap]:
    """Small models that are wrong, or odd."""
    for name, edit in EDITS.items():
        yield name, edited(edit), ()
    yield from external_traps()
    yield from text_traps()
    yield from numeric_traps()
    yield "recursive-function", recursive("Square"), ()
    yield "mutually-recursive", recursive("Other"), ()
    raw = parsed(GEMMS.format(MUL)).SerializeToString()
    for name, content in {
        "empty": b"", "one-byte": b"\x08", "text": b"hello\n", "zeros": bytes(1000),
        "ones": b"\xff" * 1000, "half": raw[: len(raw) // 2], "twice": raw * 2,
        "ort-head": b"\0\0\0\0ORTM" + bytes(100), "zip": b"PK\x03\x04" + bytes(100),
        "ir-only": b"\x08\x09", "length-bomb": b"\x3a\xff\xff\xff\xff\x07" + raw,
    }.items():  # fmt: skip
        yield f"file-{name}", content, ()


SIDE = "{} z = Identity(big)"
TWO = "float[N,2] y, float[] z"


def with_side(side: str, **more: Any) -> ModelProto:
    """A square network with a side branch that makes something large."""
    return parsed(f"{GEMMS.format(MUL)} {side}", outputs=TWO, **more)


def huge_models() -> Iterator[Trap]:
    """Models that ask for memory or time without bounds."""
    lots = np.array([2**33])
    yield (
        "range",
        with_side(
            "s0 = Constant <value_float = 0.0> () s1 = Constant <value_float = 8589934592.0> () "
            "s2 = Constant <value_float = 1.0> () z = Range(s0, s1, s2)"
        ),
        (),
    )
    yield "expand", with_side("z = Expand(one, lots)", lots=lots), ()
    yield "constant-of-shape", with_side("z = ConstantOfShape(lots)", lots=lots), ()
    yield "tile", with_side("u = Reshape(one, o) z = Tile(u, lots)", lots=lots, o=np.array([1])), ()
    yield "random-normal", with_side("z = RandomNormal <shape = [8589934592]> ()"), ()
    yield (
        "power-of-shapes",
        with_side("z = ConstantOfShape(lots)", lots=np.array([2**20, 2**20, 2**20])),
        (),
    )
    yield "extra-input", extra_input("N,1000000000"), ()
    yield "extra-input-fixed", extra_input("4,1000000000"), ()
    yield "huge-batch", batches("50000000"), ()
    yield "lcm", batches("30011", "32363"), ()
    yield "lcm-1000003", batches("1000003", "999983"), ()
    yield "infinite-loop", endless(2**63 - 1), USUAL[:1] + USUAL[3:]
    yield "long-loop", endless(10**9), USUAL[:1] + USUAL[3:]
    yield from deep_models()


def extra_input(shape: str) -> ModelProto:
    """A network with a second input that is very wide."""
    return parsed(
        GEMMS.format(MUL) + " w = Identity(z)",
        inputs=f"float[N,3] x, float[{shape}] z",
        outputs=f"float[N,2] y, float[{shape}] w",
    )


def batches(first: str, second: str = "") -> ModelProto:
    """A network with a fixed batch, and perhaps another input with another one."""
    more = " w = Identity(z)" if second else ""
    return parsed(
        GEMMS.format(MUL) + more,
        inputs=f"float[{first},3] x" + (f", float[{second},2] z" if second else ""),
        outputs=f"float[{first},2] y" + (f", float[{second},2] w" if second else ""),
    )


def endless(trips: int) -> ModelProto:
    """A network behind which a Loop turns for ever."""
    body, more = WHOLE["loop"]
    return parsed(body, **{**more, "trips": np.array(trips)})


def deep_models() -> Iterator[Trap]:
    """Long chains, which recursion does not survive, and sums that double at each step."""
    for name, step in {
        "identities": "Identity({0})", "additions": "Add({0}, one)", "doublings": "Add({0}, {0})",
        "squares": "Mul({0}, {0})", "negations": "Neg({0})",
    }.items():  # fmt: skip
        for length in (60, 1200):
            chain = " ".join(f"h{i + 1} = {step.format(f'h{i}')}" for i in range(length))
            before = f"h0 = Identity(h) {chain} s = Mul(h{length}, h{length})"
            yield f"{length}-{name}", parsed(GEMMS.format(before)), USUAL[:3]
            after = f"h0 = Mul(h, h) {chain} s = Identity(h{length})"
            yield f"square-{length}-{name}", parsed(GEMMS.format(after)), USUAL[:3]
