"""Gemm → Mul(h, h) → Gemm with random weights as an ONNX model: nothing in it is redundant."""

from __future__ import annotations

import numpy as np
import onnx

GRAPH = """<ir_version: 9, opset_import: ["": 17]> g (float[N,{inputs}] x) => (float[N,{outputs}] y)
{{ h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) y = Gemm <transB = 1> (s, V, c) }}"""


def random_network(inputs: int, neurons: int, outputs: int) -> onnx.ModelProto:
    """The d-n-m network of normal float32 weights over √ of the fan-in; always the same weights."""
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(GRAPH.format(inputs=inputs, outputs=outputs))
    shapes = {"W": (neurons, inputs), "b": (neurons,), "V": (outputs, neurons), "c": (outputs,)}
    for name, shape in shapes.items():
        array = rng.normal(size=shape).astype(np.float32) / np.float32(np.sqrt(shape[-1]))
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model
