"""Networks of affine maps and polynomials, small enough to be encrypted in a moment."""

from __future__ import annotations

import numpy as np

from onnxfde.graph.protos import ModelProto
from tests.models import build

RNG = np.random.default_rng(5)


def weights(*shape: int) -> np.ndarray:
    """Numbers of a usual size."""
    scale = np.sqrt(shape[-1]) if len(shape) > 1 else 2.0
    return np.asarray(RNG.normal(size=shape) / scale, dtype=np.float32)


def with_zeros(*shape: int) -> np.ndarray:
    """Weights of which about half are 0, and all of the last row."""
    found = weights(*shape) * RNG.integers(0, 2, shape)
    found[-1] = 0
    return np.asarray(found, dtype=np.float32)


def layers(activation: str, width: int = 5) -> ModelProto:
    """3-width-2 with an activation that makes s of h."""
    return build(
        f"h = Gemm <transB = 1> (x, W, b) {activation} y = Gemm <transB = 1> (s, V, c)",
        W=weights(width, 3),
        b=weights(width),
        V=weights(2, width),
        c=weights(2),
        two=np.float32(2),
        three=np.float32(3),
        a=weights(width),
    )


def convolution() -> ModelProto:
    """Conv → BatchNormalization → x² → Flatten → Gemm."""
    return build(
        "h = Conv <strides = [2, 2], pads = [1, 0, 0, 1]> (x, W, b) "
        "n = BatchNormalization (h, g, t, m, v) s = Mul(n, n) f = Flatten(s) "
        "y = Gemm <transB = 1> (f, V)",
        inputs="float[N,1,5,5] x",
        W=weights(2, 1, 3, 3),
        b=weights(2),
        g=np.array([1.5, -0.5], np.float32),
        t=weights(2),
        m=weights(2),
        v=np.array([0.5, 2.0], np.float32),
        V=weights(2, 8),
    )


def pruned() -> ModelProto:
    """A network with zeros among its weights."""
    return build(
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) y = Gemm <transB = 1> (s, V)",
        W=with_zeros(6, 3),
        b=weights(6),
        V=with_zeros(2, 6),
    )


SPELLINGS = {
    "x²": "s = Mul(h, h)",
    "x² + x": "q = Mul(h, h) s = Add(q, h)",
    "a·x² − x, a per neuron": "q = Pow(h, two) p = Mul(q, a) s = Sub(p, h)",
    "(2·x + a)·x": "q = Mul(h, two) p = Add(q, a) s = Mul(p, h)",
    "x³": "s = Pow(h, three)",
    "2·x³ + x + a": "q = Pow(h, three) p = Mul(q, two) r = Add(p, h) s = Add(r, a)",
}
NETWORKS = {
    **{name: layers(text) for name, text in SPELLINGS.items()},
    "convolution": convolution(),
    "pruned": pruned(),
}


def squares_in_a_row(count: int) -> ModelProto:
    """So many maps of one value, each with a square behind it."""
    steps = " ".join(f"h{i} = MatMul(s{i}, W) s{i + 1} = Mul(h{i}, h{i})" for i in range(count))
    return build(
        f"s0 = Identity(x) {steps} y = Identity(s{count})",
        inputs="float[N,1] x",
        outputs="float[N,1] y",
        W=np.ones((1, 1), np.float32),
    )
