"""MiniLM as an ONNX file, out of its weights: BERT with six layers, as torch's exporter spells it.

each layer   a = softmax(q kᵀ/√d + mask) v,   x ← norm(x + a W),   x ← norm(x + gelu(x V) U)
sentence     mean of x over its tokens, divided by its norm
gelu(z)      z/√2 → Erf → + 1 → × z → × 1/2
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper, save

from onnxfde.numbers import Array

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUT = "sentence_embedding"
OPSET = 17


def read_safetensors(path: Path) -> dict[str, Array]:
    """The float32 arrays of a file: the length of a header, the header, the values."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    found = {}
    for name, entry in json.loads(raw[8:start]).items():
        if entry.get("dtype") == "F32":
            first, last = (start + place for place in entry["data_offsets"])
            found[name] = np.frombuffer(raw[first:last], "<f4").reshape(entry["shape"])
    return found


@dataclass
class Builder:
    """A graph that grows node by node."""

    weights: Mapping[str, Array]
    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node; the name of what it computes."""
        name = f"/{kind}_{len(self.nodes)}"
        output = f"{name}_output_0"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], name, **attributes))
        return output

    def constant(self, name: str, values: Array) -> str:
        """An array under a name."""
        self.constants[name] = values
        return name

    def number(self, value: float) -> str:
        """A single number."""
        return self.constant(f"number_{value:g}", np.array(value, np.float32))

    def whole(self, *values: int) -> str:
        """A list of whole numbers."""
        name = "whole_" + "_".join(map(str, values))
        return self.constant(name, np.array(values, np.int64))

    def weight(self, name: str) -> str:
        """An array of the file."""
        return self.constant(name, self.weights[name])

    def linear(self, x: str, name: str) -> str:
        """A dense map: the exporter keeps the transposed matrix and puts the bias first."""
        turned = self.constant(f"{name}.weight_T", self.weights[f"{name}.weight"].T.copy())
        return self.add("Add", self.weight(f"{name}.bias"), self.add("MatMul", x, turned))

    def norm(self, x: str, name: str) -> str:
        """Layer normalisation."""
        scale, shift = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.add("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-12)

    def gelu(self, x: str) -> str:
        """The exact one."""
        erf = self.add("Erf", self.add("Div", x, self.number(np.sqrt(2))))
        product = self.add("Mul", x, self.add("Add", erf, self.number(1.0)))
        return self.add("Mul", product, self.number(0.5))


@dataclass(frozen=True)
class Shape:
    """The sizes of the network."""

    layers: int
    heads: int
    width: int
    tokens: int


def embedded(build: Builder, shape: Shape) -> str:
    """Words, their kinds and their places."""
    words = build.add("Gather", build.weight("embeddings.word_embeddings.weight"), INPUTS[0])
    kinds = build.add("Gather", build.weight("embeddings.token_type_embeddings.weight"), INPUTS[2])
    places = build.weights["embeddings.position_embeddings.weight"][None, : shape.tokens]
    total = build.add("Add", build.add("Add", words, kinds), build.constant("places", places))
    return build.norm(total, "embeddings.LayerNorm")


def attention(build: Builder, x: str, mask: str, name: str, shape: Shape) -> str:
    """What each token takes from the others."""
    size = shape.width // shape.heads
    apart = build.whole(-1, shape.tokens, shape.heads, size)

    def part(which: str, order: tuple[int, ...]) -> str:
        whole = build.linear(x, f"{name}.self.{which}")
        return build.add("Transpose", build.add("Reshape", whole, apart), perm=order)

    query, key = part("query", (0, 2, 1, 3)), part("key", (0, 2, 3, 1))
    value = part("value", (0, 2, 1, 3))
    scaled = build.add("Div", build.add("MatMul", query, key), build.number(np.sqrt(size)))
    shares = build.add("Softmax", build.add("Add", scaled, mask), axis=-1)
    taken = build.add("Transpose", build.add("MatMul", shares, value), perm=(0, 2, 1, 3))
    return build.add("Reshape", taken, build.whole(-1, shape.tokens, shape.width))


def layer(build: Builder, x: str, mask: str, name: str, shape: Shape) -> str:
    """One layer: attention and two dense maps, each added to what it reads."""
    taken = attention(build, x, mask, f"{name}.attention", shape)
    more = build.linear(taken, f"{name}.attention.output.dense")
    x = build.norm(build.add("Add", more, x), f"{name}.attention.output.LayerNorm")
    inner = build.gelu(build.linear(x, f"{name}.intermediate.dense"))
    more = build.linear(inner, f"{name}.output.dense")
    return build.norm(build.add("Add", more, x), f"{name}.output.LayerNorm")


def pooled(build: Builder, x: str, present: str) -> str:
    """The mean over tokens that are there, of norm 1."""
    each = build.add("Unsqueeze", present, build.whole(-1))
    total = build.add("ReduceSum", build.add("Mul", x, each), build.whole(1), keepdims=0)
    count = build.add("ReduceSum", each, build.whole(1), keepdims=0)
    mean = build.add("Div", total, build.add("Clip", count, build.number(1e-9)))
    norm = build.add("ReduceL2", mean, axes=[1], keepdims=1)
    return build.add("Div", mean, build.add("Clip", norm, build.number(1e-12)))


def bert_model(weights: Mapping[str, Array], shape: Shape) -> ModelProto:
    """The network that embeds sentences."""
    build = Builder(weights)
    present = build.add("Cast", INPUTS[1], to=TensorProto.FLOAT)
    absent = build.add("Sub", build.number(1.0), build.add("Unsqueeze", present, build.whole(1, 2)))
    mask = build.add("Mul", absent, build.number(float(np.finfo(np.float32).min)))
    x = embedded(build, shape)
    for index in range(shape.layers):
        x = layer(build, x, mask, f"encoder.layer.{index}", shape)
    build.nodes.append(helper.make_node("Identity", [pooled(build, x, present)], [OUTPUT]))
    return model_of(build, shape)


def model_of(build: Builder, shape: Shape) -> ModelProto:
    """The model of a finished graph."""
    ids = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", shape.tokens])
        for name in INPUTS
    ]
    output = helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", shape.width])
    constants = [numpy_helper.from_array(values, name) for name, values in build.constants.items()]
    graph = helper.make_graph(build.nodes, "minilm", ids, [output], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)


def export(source: Path, target: Path, tokens: int) -> None:
    """Write the ONNX file of a folder with `config.json` and `model.safetensors`."""
    config = json.loads((source / "config.json").read_text())
    names = ("num_hidden_layers", "num_attention_heads", "hidden_size")
    layers, heads, width = (config[name] for name in names)
    weights = read_safetensors(source / "model.safetensors")
    save(bert_model(weights, Shape(layers, heads, width, tokens)), target)
