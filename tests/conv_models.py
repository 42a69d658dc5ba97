"""Small convolutional networks for tests, and images that they see."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxfde.graph.protos import ModelProto
from tests.models import Array, build, outputs_of

IMAGES = "float[N,3,8,8] x"
SIGNALS = "float[N,2,32] x"


def normal(*shape: int, seed: int = 0) -> Array:
    """Random weights that keep the size of what they read."""
    wide = np.sqrt(np.prod(shape[1:]))
    drawn = np.random.default_rng([seed, *shape]).normal(size=shape)
    return np.asarray(drawn / wide, np.float32)


def alike(*shape: int, kinds: int, seed: int = 0) -> Array:
    """Filters of a few kinds, each a little different from the others of its kind."""
    rng = np.random.default_rng([seed, kinds])
    first = np.resize(normal(kinds, *shape[1:], seed=seed), shape)
    return (first * rng.uniform(0.5, 2, (shape[0], *[1] * (len(shape) - 1)))
            + 0.15 * normal(*shape, seed=seed + 1)).astype(np.float32)  # fmt: skip


def images(count: int, seed: int = 0, shape: tuple[int, ...] = (3, 8, 8)) -> Array:
    """Random maps in which neighbours are alike."""
    drawn = np.random.default_rng(seed).normal(size=(count, *shape))
    for axis in range(2, drawn.ndim):
        drawn = (drawn + np.roll(drawn, 1, axis) + np.roll(drawn, 2, axis)) / np.sqrt(3)
    return drawn.astype(np.float32)


def relative_change(before: ModelProto, after: ModelProto, x: Array) -> float:
    """‖y′ − y‖ / ‖y − mean y‖ of the only output."""
    (old,), (new,) = outputs_of(before, x), outputs_of(after, x)
    assert old.shape == new.shape
    change = np.linalg.norm(new.astype(np.float64) - old)
    return float(change / np.linalg.norm(old - old.mean(axis=0)))


def residual(**replaced: Any) -> ModelProto:
    """Stem → a block around which a shortcut leads → 24 channels → mean → Gemm.

    Its axes are 'wide' (16 channels) and 'last' (24).
    """
    weights = {
        "S": normal(8, 3, 3, 3),
        "W": alike(16, 8, 3, 3, kinds=5),
        "b": normal(16),
        "V": normal(8, 16, 3, 3),
        "c": normal(8),
        "L": alike(24, 8, 3, 3, kinds=7),
        "G": normal(4, 24),
        **replaced,
    }
    return build(
        "[stem] s = Conv <pads = [1, 1, 1, 1]> (x, S) t = Relu(s) "
        "[wide] h = Conv <pads = [1, 1, 1, 1]> (t, W, b) r = Relu(h) "
        "[back] m = Conv <pads = [1, 1, 1, 1]> (r, V, c) [sum] a = Add(t, m) u = Relu(a) "
        "[last] k = Conv <strides = [2, 2]> (u, L) l = Relu(k) "
        "g = GlobalAveragePool(l) f = Flatten(g) [head] y = Gemm <transB = 1> (f, G)",
        inputs=IMAGES,
        outputs="float[N,4] y",
        **weights,
    )


def with_branches() -> ModelProto:
    """Two convolutions read the 16 channels of 'wide'."""
    return build(
        "[wide] h = Conv(x, W) r = Relu(h) "
        "[one] p = Conv(r, P) [two] q = Conv <pads = [1, 1, 1, 1]> (r, Q) "
        "g = GlobalAveragePool(p) e = GlobalMaxPool(q) y = Concat <axis = 1> (g, e)",
        inputs=IMAGES,
        outputs="float[N,7,1,1] y",
        W=alike(16, 3, 3, 3, kinds=5),
        P=normal(4, 16, 1, 1),
        Q=normal(3, 16, 3, 3),
    )


def of_signals() -> ModelProto:
    """Convolutions along one axis."""
    return build(
        '[wide] h = Conv <auto_pad = "SAME_UPPER", strides = [2]> (x, W, b) r = Relu(h) '
        "p = MaxPool <kernel_shape = [2], strides = [2]> (r) [back] y = Conv(p, V)",
        inputs=SIGNALS,
        outputs="float[N,3,L] y",
        W=alike(16, 2, 5, kinds=4),
        b=normal(16),
        V=normal(3, 16, 3),
    )


def with_resize() -> ModelProto:
    """Channels that are enlarged before they are read."""
    return build(
        '[wide] h = Conv(x, W) r = Relu(h) z = Resize <mode = "nearest"> (r, , scales) '
        "[back] y = Conv(z, V)",
        inputs=IMAGES,
        outputs="float[N,3,A,B] y",
        W=alike(16, 3, 3, 3, kinds=5),
        scales=np.array([1, 1, 2, 2], np.float32),
        V=normal(3, 16, 3, 3),
    )


def with_idle_nodes() -> ModelProto:
    """Clip spelled as Max and Min, and nodes behind it that keep everything."""
    return build(
        "[wide] h = Conv(x, W) m = Max(h, zero) r = Min(six, m) s = Slice(r, zeros, ends, axes) "
        "t = Concat <axis = 1> (s) z = Expand(t, lengths) [back] y = Conv(z, V)",
        inputs=IMAGES,
        outputs="float[N,3,A,B] y",
        W=alike(16, 3, 3, 3, kinds=5),
        zero=np.float32(0),
        six=np.float32(6),
        zeros=np.array([0, -16]),
        ends=np.array([2**62, 16]),
        axes=np.array([0, 1]),
        lengths=np.array([16, 1, 1]),
        V=normal(3, 16, 3, 3),
    )


def squeezed() -> ModelProto:
    """Channels that are multiplied with what their means say (squeeze-and-excite)."""
    return build(
        "[wide] h = Conv(x, W) r = Relu(h) g = GlobalAveragePool(r) [inner] e = Conv(g, E) "
        "d = Relu(e) [gate] q = Conv(d, D) s = Sigmoid(q) z = Mul(r, s) [back] y = Conv(z, V)",
        inputs=IMAGES,
        outputs="float[N,3,A,B] y",
        W=normal(16, 3, 3, 3),
        E=normal(4, 16, 1, 1),
        D=normal(16, 4, 1, 1),
        V=normal(3, 16, 3, 3),
    )


def vgg_like() -> ModelProto:
    """Two convolutions, a pool, and a dense layer: the channels of 'two' are flattened."""
    return build(
        "[one] h = Conv <pads = [1, 1, 1, 1]> (x, A, a) r = Relu(h) "
        "[two] k = Conv <pads = [1, 1, 1, 1]> (r, B, b) t = Relu(k) "
        "p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (t) "
        "f = Flatten(p) [head] y = Gemm <transB = 1> (f, G)",
        inputs=IMAGES,
        outputs="float[N,4] y",
        A=alike(12, 3, 3, 3, kinds=5),
        a=normal(12),
        B=alike(14, 12, 3, 3, kinds=5),
        b=normal(14),
        G=normal(4, 14 * 16),
    )


def normalizing(name: str, units: int) -> dict[str, Any]:
    """The four vectors of a BatchNormalization."""
    rng = np.random.default_rng(units)
    arrays = rng.uniform(0.5, 2, (4, units)).astype(np.float32)
    arrays[1:3] -= 1
    return {f"{name}{i}": array for i, array in enumerate(arrays)}


def inverted_residual() -> ModelProto:
    """A block of MobileNetV2: 'wide' is made, convolved channel by channel, and summed; ReLU6."""
    return build(
        "[stem] s = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, S) t = Relu(s) "
        "[wide] h = Conv(t, W) n = BatchNormalization(h, W0, W1, W2, W3) r = Clip(n, zero, six) "
        "[deep] d = Conv <group = 18, pads = [1, 1, 1, 1]> (r, D) "
        "e = BatchNormalization(d, D0, D1, D2, D3) q = Clip(e, zero, six) "
        "[back] m = Conv(q, V) u = BatchNormalization(m, V0, V1, V2, V3) [sum] a = Add(t, u) "
        "[last] k = Conv(a, L, l) c = Clip(k, zero, six) "
        "g = GlobalAveragePool(c) f = Flatten(g) [head] y = Gemm <transB = 1> (f, G)",
        inputs=IMAGES,
        outputs="float[N,4] y",
        S=normal(6, 3, 3, 3),
        W=alike(18, 6, 1, 1, kinds=5),
        D=normal(18, 1, 3, 3),
        V=normal(6, 18, 1, 1),
        L=alike(20, 6, 1, 1, kinds=6),
        l=normal(20),
        G=normal(4, 20),
        zero=np.float32(0),
        six=np.float32(6),
        **normalizing("W", 18),
        **normalizing("D", 18),
        **normalizing("V", 6),
    )
