"""Layers and networks of every activation in which neurons are present several times."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxfde.graph.protos import ModelProto
from onnxfde.neurons.activation import Activation
from onnxfde.neurons.activations import activation_named
from onnxfde.neurons.layer import Layer
from onnxfde.numbers import Array, FloatArray
from tests.models import build


def planted_factors(activation: Activation, count: int, rng: np.random.Generator) -> FloatArray:
    """Factors that a neuron's row may have, as far as its scale and sign are free."""
    factor = np.exp(rng.normal(size=count)) if activation.degree is not None else np.ones(count)
    signed = activation.reflection is not None or activation.name == "PRelu"
    return factor * rng.choice([-1.0, 1.0], count) if signed else factor


def planted_layer(
    activation: Activation,
    rng: np.random.Generator,
    distinct: int = 8,
    copies: int = 4,
    inputs: int = 5,
    outputs: int = 3,
    dtype: Any = np.float32,
) -> Layer:
    """A layer in which every neuron is present several times, as far as free scaled and flipped."""
    count = distinct * copies
    rows = np.tile(rng.normal(size=(distinct, inputs + 1)), (copies, 1))
    rows *= planted_factors(activation, count, rng)[:, None]
    order = rng.permutation(count)
    slopes = tuple(rng.uniform(-0.5, 0.9, count) for _ in range(activation.parameters))
    outgoing, offset = rng.normal(size=(outputs, count)), rng.normal(size=outputs)
    return Layer(rows[order], outgoing, offset, activation, slopes).stored_as(dtype)


def planted_weights(
    activation: Activation,
    widths: tuple[int, ...] = (10, 256, 256, 1),
    copies: int = 4,
    seed: int = 0,
    gated: bool = False,
) -> list[Array]:
    """W1, b1, W2, b2 … of a network in which every hidden neuron is present several times.

    Copies have random scales and, where that costs no further neuron or `gated` is set, signs.
    """
    rng = np.random.default_rng(seed)
    arrays: list[Array] = []
    for inputs, outputs, last in zip(widths, widths[1:], (*widths[2:], 0), strict=False):
        distinct = outputs // copies if last else outputs
        rows = rng.normal(size=(distinct, inputs + 1)) / np.sqrt(inputs)
        if last:
            factor = planted_factors(activation, outputs, rng)
            mirror = activation.reflection
            if mirror is not None and mirror.line and not gated:
                factor = np.abs(factor)
            rows = np.tile(rows, (copies, 1))[rng.permutation(outputs)] * factor[:, None]
        arrays += [rows[:, :-1].astype(np.float32), rows[:, -1].astype(np.float32)]
    return arrays


def planted_mlp(
    operator: str,
    widths: tuple[int, ...] = (10, 256, 256, 1),
    copies: int = 4,
    seed: int = 0,
    **attributes: float,
) -> ModelProto:
    """Gemm → activation → … → Gemm with planted copies: 68,865 parameters, 4,929 without them."""
    activation = activation_named(operator, **attributes)
    arrays = planted_weights(activation, widths, copies, seed)
    told = ", ".join(f"{name} = {value:.9g}" for name, value in attributes.items())
    told = f"<{told}>" if told else ""
    lines, last = [], len(arrays) // 2
    for k in range(1, last + 1):
        source, target = ("x" if k == 1 else f"a{k - 1}"), ("y" if k == last else f"h{k}")
        lines.append(f"[dense{k}] {target} = Gemm <transB = 1> ({source}, W{k}, b{k})")
        if k < last:
            lines.append(f"[act{k}] a{k} = {operator} {told} (h{k})")
    names = [f"{letter}{k}" for k in range(1, last + 1) for letter in "Wb"]
    weights: dict[str, Any] = dict(zip(names, arrays, strict=True))
    return build(
        " ".join(lines),
        inputs=f"float[N,{widths[0]}] x",
        outputs=f"float[N,{widths[-1]}] y",
        opset=20,
        **weights,
    )
