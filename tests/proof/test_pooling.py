"""Pools and convolutions give what onnxruntime gives, in every form they may have."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from onnxfde.graph.protos import NodeProto
from onnxfde.neurons.intervals import Interval, Pair, Uncertified
from onnxfde.numbers import Array
from onnxfde.proof.node_call import NodeCall
from onnxfde.proof.operator_table import apply_operator
from onnxfde.running.runtime import ORT_ERRORS

FORMS = 250
"""Random forms; an eighth of them at least must be compared for each kind of node."""
KINDS = ("MaxPool", "AveragePool", "Conv")


def random_form(rng: np.random.Generator) -> tuple[NodeProto, int, list[Array]]:
    """A pool or convolution with any attributes, its opset, and what it reads."""
    kind, opset = str(rng.choice(KINDS)), int(rng.choice([12, 19, 22]))
    axes = int(rng.choice([1, 2, 2, 3]))
    kernel = rng.integers(1, 4, size=axes).tolist()
    options: dict[str, Any] = {} if kind == "Conv" else {"kernel_shape": kernel}
    if rng.random() < 0.5:
        options["strides"] = rng.integers(1, 4, size=axes).tolist()
    padding = str(rng.choice(["", "pads", "same", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if padding in ("pads", "same"):
        before, after = (rng.integers(0, kernel).tolist() for _ in range(2))
        options["pads"] = before + (before if padding == "same" else after)
    elif padding:
        options["auto_pad"] = padding
    if rng.random() < 0.25 and (kind != "AveragePool" or opset >= 19):
        options["dilations"] = rng.integers(1, 3, size=axes).tolist()
    if kind != "Conv" and rng.random() < 0.4:
        options["ceil_mode"] = 1
    if kind == "AveragePool" and rng.random() < 0.4:
        options["count_include_pad"] = 1
    reads = [rng.normal(-5, 1, size=(1, 2, *rng.integers(3, 9, size=axes)))]
    if kind == "Conv":
        options["group"] = int(rng.choice([1, 2]))
        reads.append(rng.normal(size=(4, 2 // options["group"], *kernel)))
    names = ["x", "w"][: len(reads)]
    return helper.make_node(kind, names, ["y"], **options), opset, reads


def by_onnxruntime(node: NodeProto, opset: int, reads: list[Array]) -> Array | None:
    """The output of onnxruntime in float32; None where it refuses the node."""
    feeds = {n: a.astype(np.float32) for n, a in zip(node.input, reads, strict=True)}
    inputs = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in feeds.items()
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    model = helper.make_model(
        helper.make_graph([node], "g", inputs, outputs),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=8,
    )
    quiet = ort.SessionOptions()
    quiet.log_severity_level = 4
    try:
        found = ort.InferenceSession(model.SerializeToString(), quiet).run(None, feeds)
    except ORT_ERRORS:
        return None
    return np.asarray(found[0])


def test_every_form_of_a_pool_and_a_convolution_is_that_of_onnxruntime() -> None:
    rng = np.random.default_rng(0)
    compared: Counter[str] = Counter()
    for _ in range(FORMS):
        node, opset, reads = random_form(rng)
        expected = by_onnxruntime(node, opset, reads)
        if expected is None:
            continue
        pairs = tuple(Pair.same(Interval.point(a)) for a in reads)
        try:
            found = apply_operator(NodeCall(node, pairs, opset), node.op_type)
        except Uncertified:
            continue
        assert isinstance(found, Pair)
        compared[node.op_type] += 1
        np.testing.assert_allclose(
            found.value.mid, expected, rtol=1e-5, atol=1e-5, err_msg=str(node)
        )
    assert min(compared[kind] for kind in KINDS) >= FORMS // 8
