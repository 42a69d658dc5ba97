"""Layers 3-6-2 with every activation of the table, in every spelling that exporters write."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from onnxfde.graph.protos import ModelProto
from onnxfde.neurons import piecewise_activations as piecewise
from onnxfde.neurons import polynomial_activations as polynomials
from onnxfde.neurons import smooth_activations as smooth
from onnxfde.neurons.activation import Activation
from onnxfde.neurons.activation_functions import TANH_CUBE, TANH_SLOPE
from onnxfde.neurons.polynomial_activations import scaled_activation
from tests.models import Array, build

KINDS: dict[str, Any] = {"float": np.float32, "float16": np.float16, "double": np.float64}
"""numpy's types by their names in the text of a graph; bfloat16 has no kernels to compare with."""
NEURONS = 6
RNG = np.random.default_rng(15)
WEIGHTS: dict[str, Array] = {
    "W": RNG.normal(size=(NEURONS, 3)),
    "b": RNG.normal(size=NEURONS),
    "V": RNG.normal(size=(2, NEURONS)),
    "c": RNG.normal(size=2),
}
SLOPES = np.linspace(-0.2, 0.9, NEURONS)
BIAS = np.linspace(-0.5, 0.5, NEURONS)
CONSTANTS: dict[str, Any] = {
    "zero": 0.0,
    "half": 0.5,
    "one": 1.0,
    "two": 2.0,
    "three": 3.0,
    "four": 4.0,
    "six": 6.0,
    "twenty": 20.0,
    "tenth": 0.1,
    "sixth": 1 / 6,
    "low": -0.75,
    "high": 1.25,
    "beta": 1.702,
    "root2": np.sqrt(2),
    "root_half": np.sqrt(0.5),
    "cube": TANH_CUBE,
    "steep": TANH_SLOPE,
    "slope": 0.25,
    "slopes": SLOPES,
    "slope_row": SLOPES[None],
    "minus_slopes": -SLOPES,
    "added": BIAS,
    "cubed": np.full(1, 3.0),
}
GEMMS = "[first] h = Gemm <transB = 1> (x, W, b) {} [second] y = Gemm <transB = 1> (s, V, c)"


class Wanted(NamedTuple):
    """An activation, how it is written from h to s, and where that is allowed."""

    activation: Activation
    body: str
    opset: int = 17
    unit_parameters: tuple[Array, ...] = ()
    added: Array | None = None
    domain: str = ""
    rough: float = 0.0
    """How far the row is from what the nodes compute in double, if something in it is float32."""
    kinds: tuple[str, ...] = ("float", "float16", "double")
    """The types that a runtime has kernels for."""


def f32(a: float) -> float:
    """A number as an attribute stores it."""
    return float(np.float32(a))


def microsoft(text: str) -> str:
    return f"s = com.microsoft.{text}"


TANH_GELU_TAIL = "t = Mul(r, steep) u = Tanh(t) v = Add(u, one)"
SPELLINGS: dict[str, Wanted] = {
    "Relu": Wanted(piecewise.RELU, "s = Relu(h)"),
    "Relu: Clip from 0": Wanted(piecewise.RELU, "s = Clip(h, zero)"),
    "Relu: Clip from 0, attribute": Wanted(piecewise.RELU, "s = Clip <min = 0.0> (h)", 10),
    "Relu: Max": Wanted(piecewise.RELU, "s = Max(h, zero)"),
    "LeakyRelu": Wanted(piecewise.leaky_relu(f32(0.01)), "s = LeakyRelu(h)"),
    "LeakyRelu 0.2": Wanted(piecewise.leaky_relu(f32(0.2)), "s = LeakyRelu <alpha = 0.2> (h)"),
    "LeakyRelu: PRelu with one slope": Wanted(piecewise.leaky_relu(0.25), "s = PRelu(h, slope)"),
    "LeakyRelu: Max": Wanted(piecewise.leaky_relu(0.25), "t = Mul(slope, h) s = Max(t, h)"),
    "LeakyRelu: two Relus": Wanted(
        piecewise.leaky_relu(0.25),
        "p = Relu(h) n = Neg(h) q = Relu(n) r = Mul(q, slope) s = Sub(p, r)",
    ),
    "LeakyRelu: Where": Wanted(
        piecewise.leaky_relu(0.25), "p = Mul(h, slope) q = Less(zero, h) s = Where(q, h, p)"
    ),
    "PRelu": Wanted(piecewise.PRELU, "s = PRelu(h, slopes)", unit_parameters=(SLOPES,)),
    "PRelu, slopes in a row": Wanted(
        piecewise.PRELU, "s = PRelu(h, slope_row)", unit_parameters=(SLOPES,)
    ),
    "PRelu of keras": Wanted(
        piecewise.PRELU,
        "p = Relu(h) n = Neg(h) q = Relu(n) r = Mul(minus_slopes, q) s = Add(p, r)",
        unit_parameters=(SLOPES,),
    ),
    "ReLU²: Mul": Wanted(piecewise.RELU_SQUARED, "r = Relu(h) s = Mul(r, r)"),
    "ReLU²: Pow": Wanted(piecewise.RELU_SQUARED, "r = Relu(h) s = Pow(r, two)"),
    "ReLU²: x·Relu(x)": Wanted(piecewise.RELU_SQUARED, "r = Relu(h) s = Mul(h, r)"),
    "|x|²": Wanted(polynomials.SQUARE, "p = Abs(h) s = Pow(p, two)"),
    "Abs": Wanted(piecewise.ABS, "s = Abs(h)"),
    "Abs: Max": Wanted(piecewise.ABS, "n = Neg(h) s = Max(h, n)"),
    "Clip": Wanted(piecewise.clip(-0.75, 1.25), "s = Clip(h, low, high)"),
    "Clip, attributes": Wanted(
        piecewise.clip(-0.75, 1.25), "s = Clip <min = -0.75, max = 1.25> (h)", 10
    ),
    "Clip from below": Wanted(piecewise.clip(-0.75), "s = Clip(h, low)"),
    "Clip from above": Wanted(piecewise.clip(most=1.25), 's = Clip(h, "", high)'),
    "Clip from above: Min": Wanted(piecewise.clip(most=1.25), "s = Min(high, h)"),
    "Clip from above, attribute": Wanted(piecewise.clip(most=1.25), "s = Clip <max = 1.25> (h)", 7),
    "ReLU6": Wanted(piecewise.clip(0.0, 6.0), "s = Clip(h, zero, six)"),
    "ReLU6: Max and Min": Wanted(piecewise.clip(0.0, 6.0), "r = Max(h, zero) s = Min(r, six)"),
    "ReLU6: Relu and Min": Wanted(piecewise.clip(0.0, 6.0), "r = Relu(h) s = Min(six, r)"),
    "ThresholdedRelu": Wanted(piecewise.thresholded_relu(), "s = ThresholdedRelu(h)"),
    "ThresholdedRelu 0.5": Wanted(
        piecewise.thresholded_relu(0.5), "s = ThresholdedRelu <alpha = 0.5> (h)"
    ),
    "ThresholdedRelu: Where": Wanted(
        piecewise.thresholded_relu(0.5), "p = LessOrEqual(h, half) s = Where(p, zero, h)"
    ),
    "HardSigmoid": Wanted(piecewise.hard_sigmoid(f32(0.2), 0.5), "s = HardSigmoid(h)"),
    "HardSigmoid 0.25, 0.4": Wanted(
        piecewise.hard_sigmoid(0.25, f32(0.4)), "s = HardSigmoid <alpha = 0.25, beta = 0.4> (h)"
    ),
    "HardSwish": Wanted(piecewise.HARD_SWISH, "s = HardSwish(h)", rough=1e-7),
    "HardSwish: HardSigmoid": Wanted(
        piecewise.HARD_SWISH, "g = HardSigmoid <alpha = 0.16666667> (h) s = Mul(h, g)", rough=1e-7
    ),
    "HardSwish: Clip and Div": Wanted(
        scaled_activation(piecewise.HARD_SWISH, 6.0),
        "p = Add(h, three) q = Clip(p, zero, six) r = Mul(h, q) s = Div(r, six)",
    ),
    "HardSwish: Clip times 1/6": Wanted(
        piecewise.HARD_SWISH,
        "p = Add(h, three) q = Clip(p, zero, six) r = Mul(q, sixth) s = Mul(r, h)",
    ),
    "HardSwish: Relu6 by Min": Wanted(
        piecewise.HARD_SWISH,
        "p = Add(three, h) q = Relu(p) r = Min(q, six) t = Div(r, six) s = Mul(h, t)",
    ),
    "Sigmoid": Wanted(smooth.SIGMOID, "s = Sigmoid(h)"),
    "Tanh": Wanted(smooth.TANH, "s = Tanh(h)"),
    "Erf": Wanted(smooth.ERF, "s = Erf(h)"),
    "Softsign": Wanted(smooth.SOFTSIGN, "s = Softsign(h)"),
    "Softsign: Div": Wanted(smooth.SOFTSIGN, "p = Abs(h) q = Add(p, one) s = Div(h, q)"),
    "Softplus": Wanted(smooth.SOFTPLUS, "s = Softplus(h)"),
    "Softplus: Where": Wanted(
        smooth.SOFTPLUS,
        "p = Softplus(h) q = Greater(h, twenty) s = Where(q, h, p)",
        kinds=("float", "float16"),
    ),
    "Elu": Wanted(smooth.elu(), "s = Elu(h)"),
    "Elu 0.5": Wanted(smooth.elu(0.5), "s = Elu <alpha = 0.5> (h)"),
    "Selu": Wanted(smooth.selu(), "s = Selu(h)"),
    "Selu 1.5, 0.75": Wanted(smooth.selu(1.5, 0.75), "s = Selu <alpha = 1.5, gamma = 0.75> (h)"),
    "Celu": Wanted(smooth.celu(), "s = Celu(h)", kinds=("float",)),
    "Celu 0.5": Wanted(smooth.celu(0.5), "s = Celu <alpha = 0.5> (h)", kinds=("float",)),
    "Mish": Wanted(smooth.MISH, "s = Mish(h)", 18),
    "Mish: Tanh and Softplus": Wanted(smooth.MISH, "p = Softplus(h) q = Tanh(p) s = Mul(h, q)"),
    "Gelu": Wanted(smooth.GELU, "s = Gelu(h)", 20),
    "Gelu of onnxruntime": Wanted(
        smooth.GELU, microsoft("Gelu(h)"), domain="com.microsoft", kinds=("float", "float16")
    ),
    "Gelu by tanh": Wanted(smooth.TANH_GELU, 's = Gelu <approximate = "tanh"> (h)', 20),
    "FastGelu": Wanted(smooth.TANH_GELU, microsoft("FastGelu(h)"), domain="com.microsoft"),
    "FastGelu with a bias": Wanted(
        smooth.TANH_GELU, microsoft("FastGelu(h, added)"), added=BIAS, domain="com.microsoft"
    ),
    "BiasGelu": Wanted(
        smooth.GELU,
        microsoft("BiasGelu(h, added)"),
        added=BIAS,
        domain="com.microsoft",
        kinds=("float", "float16"),
    ),
    "QuickGelu": Wanted(smooth.silu(f32(1.702)), microsoft("QuickGelu(h)"), domain="com.microsoft"),
    "QuickGelu 1.5": Wanted(
        smooth.silu(1.5), microsoft("QuickGelu <alpha = 1.5> (h)"), domain="com.microsoft"
    ),
    "Gelu: (x·(1 + erf))·0.5": Wanted(
        scaled_activation(smooth.GELU, 2.0),
        "p = Div(h, root2) q = Erf(p) r = Add(q, one) t = Mul(h, r) s = Mul(t, half)",
    ),
    "Gelu: x·(0.5·(1 + erf))": Wanted(
        smooth.GELU,
        "p = Mul(h, root_half) q = Erf(p) r = Add(one, q) t = Mul(half, r) s = Mul(h, t)",
    ),
    "Gelu: (x·0.5)·(1 + erf)": Wanted(
        smooth.GELU, "p = Div(h, root2) q = Erf(p) r = Add(q, one) t = Mul(h, half) s = Mul(t, r)"
    ),
    "Gelu: x·(0.5·erf + 0.5)": Wanted(
        smooth.GELU,
        "p = Mul(root_half, h) q = Erf(p) r = Mul(q, half) t = Add(r, half) s = Mul(t, h)",
    ),
    "Gelu: 0.5·x + 0.5·x·erf": Wanted(
        smooth.GELU, "p = Div(h, root2) q = Erf(p) r = Mul(h, half) t = Mul(r, q) s = Add(r, t)"
    ),
    "Gelu by tanh: Pow": Wanted(
        smooth.TANH_GELU,
        f"p = Pow(h, three) q = Mul(p, cube) r = Add(h, q) {TANH_GELU_TAIL} w = Mul(half, h) "
        "s = Mul(w, v)",
    ),
    "Gelu by tanh: x·x·x": Wanted(
        scaled_activation(smooth.TANH_GELU, 2.0),
        f"o = Mul(h, h) p = Mul(o, h) q = Mul(cube, p) r = Add(q, h) {TANH_GELU_TAIL} "
        "w = Mul(v, h) s = Mul(w, half)",
    ),
    "Gelu by tanh: x·(1 + c·x²)": Wanted(
        smooth.TANH_GELU,
        f"o = Mul(h, h) p = Mul(o, cube) q = Add(p, one) r = Mul(q, h) {TANH_GELU_TAIL} "
        "w = Mul(v, half) s = Mul(w, h)",
    ),
    "SiLU": Wanted(smooth.silu(), "g = Sigmoid(h) s = Mul(h, g)"),
    "SiLU, the gate first": Wanted(smooth.silu(), "g = Sigmoid(h) s = Mul(g, h)"),
    "SiLU: Swish": Wanted(smooth.silu(), "s = Swish(h)", 24),
    "SiLU 1.5: Swish": Wanted(smooth.silu(1.5), "s = Swish <alpha = 1.5> (h)", 24),
    "SiLU 1.702": Wanted(smooth.silu(1.702), "p = Mul(h, beta) g = Sigmoid(p) s = Mul(h, g)"),
    "SiLU by tanh": Wanted(
        scaled_activation(smooth.silu(), 2.0),
        "p = Mul(h, half) g = Tanh(p) q = Add(g, one) r = Mul(h, q) s = Mul(r, half)",
    ),
    "SiLU by tanh of a half": Wanted(
        scaled_activation(smooth.silu(2.0), 2.0),
        "p = Mul(h, half) g = Tanh(p) q = Add(g, one) s = Mul(p, q)",
    ),
    "Sin": Wanted(smooth.SIN, "s = Sin(h)"),
    "Pow 3": Wanted(polynomials.polynomial((0, 0, 0, 1)), "s = Pow(h, three)"),
    "Pow 3, a tensor": Wanted(polynomials.polynomial((0, 0, 0, 1)), "s = Pow(h, cubed)"),
    "x·x·x": Wanted(polynomials.polynomial((0, 0, 0, 1)), "q = Mul(h, h) s = Mul(q, h)"),
    "x⁴": Wanted(polynomials.polynomial((0, 0, 0, 0, 1)), "q = Mul(h, h) s = Mul(q, q)"),
    "0.5·x³ − x + 3": Wanted(
        polynomials.polynomial((0, -1, 0, 0.5)),
        "q = Pow(h, three) r = Mul(half, q) t = Sub(r, h) s = Add(t, three)",
    ),
    "Horner": Wanted(
        polynomials.polynomial((0, 3, 2, 0.5)),
        "p = Mul(half, h) q = Add(p, two) r = Mul(q, h) t = Add(r, three) s = Mul(t, h)",
    ),
}
"""Every spelling from h to s; constants of the type of the model are rounded to it."""


class Spelled(NamedTuple):
    """A model and what its layer is."""

    id: str
    wanted: Wanted
    kind: str
    model: ModelProto


def spelled_layer_model(wanted: Wanted, kind: str = "float", **other: Any) -> ModelProto:
    """A layer with an activation between two Gemms."""
    found = {**WEIGHTS, **CONSTANTS, **other}
    text = GEMMS.format(wanted.body)
    words = set(text.replace("(", " ").replace(")", " ").replace(",", " ").split())
    used: dict[str, Any] = {}
    used |= {n: np.asarray(a).astype(KINDS[kind]) for n, a in found.items() if n in words}
    model = build(text, f"{kind}[N,3] x", f"{kind}[N,2] y", wanted.opset, **used)
    if wanted.domain:
        model.opset_import.add(domain=wanted.domain, version=1)
    return model


def spellings() -> Iterator[Spelled]:
    """Every activation in every spelling and type."""
    for name, wanted in SPELLINGS.items():
        for kind in wanted.kinds:
            yield Spelled(f"{name}, {kind}", wanted, kind, spelled_layer_model(wanted, kind))
