"""Layers with a·x² + b·x + c in many spellings; each neuron is present twice."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from onnxfde.graph.protos import ModelProto
from tests.models import Array, build

KINDS: dict[str, Any] = {
    "float": np.float32,
    "float16": np.float16,
    "double": np.float64,
    "bfloat16": ml_dtypes.bfloat16,
}
"""numpy's types by their names in the text of a graph."""
DISTINCT = 3
RNG = np.random.default_rng(0)


def twice(values: Array) -> Array:
    return np.concatenate([values, values])


WEIGHTS: dict[str, Array] = {
    "W": twice(RNG.normal(size=(DISTINCT, 3))),
    "b": twice(RNG.normal(size=DISTINCT)),
    "V": RNG.normal(size=(2, 2 * DISTINCT)),
    "c": RNG.normal(size=2),
}
CONSTANTS: dict[str, Any] = {
    "half": 0.5,
    "one": 1.0,
    "two": 2.0,
    "three": 3.0,
    "four": np.full((1, 1), 4.0),
    "twos": np.full(6, 2.0),
    "ones": np.ones((1, 6)),
    "tiny": 1e-4,
    "tinies": twice(RNG.uniform(5e-5, 2e-4, size=DISTINCT)),
    "k": twice(RNG.uniform(0.5, 2, size=DISTINCT)),
    "l": twice(RNG.normal(size=DISTINCT)),
    "m": twice(RNG.normal(size=DISTINCT)),
    "var": twice(RNG.uniform(0.5, 2, size=DISTINCT)),
}
NORMALIZED = "n = BatchNormalization(h, k, l, m, var)"
CHEAP = {
    "x·x + x": "q = Mul(h, h) s = Add(q, h)",
    "x·(x + 1)": "q = Add(h, one) s = Mul(h, q)",
    "(0.5·x)·x": "q = Mul(half, h) s = Mul(q, h)",
    "a·x² + b·x + c": "p = Pow(h, two) q = Mul(p, half) r = Mul(three, h) t = Add(q, r) "
    "s = Add(one, t)",
    "Horner": "p = Mul(half, h) q = Add(p, three) r = Mul(q, h) s = Add(r, one)",
    "a coefficient per feature": "q = Mul(h, h) p = Mul(q, k) r = Mul(l, h) t = Sub(p, r) "
    "s = Sub(m, t)",
    "Neg and Div": "n = Neg(h) q = Mul(n, h) d = Div(q, four) s = Sub(h, d)",
    "Pow by a vector": "s = Pow(h, twos)",
    "Pow by a vector and Pow by 1": "q = Pow(h, twos) p = Pow(h, ones) s = Add(q, p)",
    "a product of two lines": "p = Sub(h, one) q = Add(h, k) s = Mul(p, q)",
    "a sum of two squares": "p = Add(h, one) q = Mul(p, p) r = Mul(h, h) t = Add(q, r) "
    "s = Div(t, three)",
    "x + x squared": "p = Add(h, h) s = Mul(p, p)",
    "Identity and Dropout inside": "i = Identity(h) q = Mul(i, h) d = Dropout(q) e = Identity(i) "
    "s = Add(d, e)",
    "Sum": "q = Mul(h, h) s = Sum(q, h, k)",
    "BatchNormalization before a square": f"{NORMALIZED} s = Mul(n, n)",
    "BatchNormalization on both sides": f"{NORMALIZED} q = Mul(n, n) t = Add(q, n) "
    "s = BatchNormalization <epsilon = 0.01> (t, k, m, l, var)",
}
"""Spellings from h to s whose square is completed."""
COSTLY = {
    "1e-4·x² + x": "q = Mul(h, h) p = Mul(q, tiny) s = Add(p, h)",
    "1e-4·x² + x per feature": "q = Mul(h, h) p = Mul(tinies, q) s = Add(h, p)",
    "1e-4·x² + x, normalized": f"{NORMALIZED} q = Mul(n, n) p = Mul(q, tiny) s = Add(p, n)",
}
"""Spellings for which that would cost accuracy."""
GEMMS = "[first] h = Gemm <transB = 1> (x, W, b) {} [second] y = Gemm <transB = 1> (s, V, c)"


def polynomial_layer(body: str, kind: str = "float", **other: Any) -> ModelProto:
    """A layer 3-6-2 with this polynomial between two Gemms."""
    found = {**WEIGHTS, **CONSTANTS, **other}
    words = set(GEMMS.format(body).replace("(", " ").replace(")", " ").replace(",", " ").split())
    used: dict[str, Any] = {}
    used |= {n: np.asarray(a).astype(KINDS[kind]) for n, a in found.items() if n in words}
    return build(GEMMS.format(body), inputs=f"{kind}[N,3] x", outputs=f"{kind}[N,2] y", **used)


def operators(model: ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]
