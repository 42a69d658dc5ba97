"""Is a certificate ever exceeded? Random networks against the worst inputs that a search finds.

`python -m benchmarks.certificate_soundness 2000`: networks of one and of two layers, of squares and
of every activation that an operator spells, each compared with a copy that has fewer neurons or
other weights, or no neuron twice any more. The inputs are random, corners of the box, and both
again after steps along the sign of the gradient. Exits with 1 if one of them changes an output by
more than the certificate allows.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import replace

import numpy as np
import onnx
from onnx import numpy_helper

from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.neurons.activation import Activation
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.piecewise_activations import (
    ABS,
    HARD_SWISH,
    PRELU,
    RELU,
    RELU_SQUARED,
    clip,
    hard_sigmoid,
    leaky_relu,
    thresholded_relu,
)
from onnxfde.neurons.polynomial_activations import SQUARE, polynomial
from onnxfde.neurons.smooth_activations import (
    ERF,
    GELU,
    MISH,
    SIGMOID,
    SIN,
    SOFTPLUS,
    SOFTSIGN,
    TANH,
    TANH_GELU,
    celu,
    elu,
    selu,
    silu,
)
from onnxfde.numbers import FloatArray
from onnxfde.proof.certificate import certify

Network = tuple[Layer, ...]
DEPTHS = (1, 2)
STARTS = 24
"""Random inputs, and as many corners, that a search starts from. Chosen; not tuned."""
STEPS = (0.0, 1.0, 0.5, 0.25, 0.1, 0.03)
"""Lengths of the steps along the sign of the gradient, in a box of width 2. Chosen; not tuned."""
RELATIVE, ABSOLUTE = 1e-9, 1e-12
"""What the float64 evaluation of these small networks may add to a change."""


SPELLED: dict[str, tuple[Activation, str]] = {
    "square": (SQUARE, "s = Mul(h, h)"),
    "Relu": (RELU, "s = Relu(h)"),
    "LeakyRelu": (leaky_relu(0.5), "s = LeakyRelu <alpha = 0.5> (h)"),
    "PRelu": (PRELU, "s = PRelu(h, P)"),
    "Relu²": (RELU_SQUARED, "r = Relu(h) s = Mul(r, r)"),
    "Abs": (ABS, "s = Abs(h)"),
    "Clip": (clip(-0.5, np.inf), "s = Clip(h, low)"),
    "ThresholdedRelu": (thresholded_relu(0.25), "s = ThresholdedRelu <alpha = 0.25> (h)"),
    "HardSigmoid": (hard_sigmoid(0.25, 0.5), "s = HardSigmoid <alpha = 0.25, beta = 0.5> (h)"),
    "HardSwish": (HARD_SWISH, "s = HardSwish(h)"),
    "Sigmoid": (SIGMOID, "s = Sigmoid(h)"),
    "Tanh": (TANH, "s = Tanh(h)"),
    "Erf": (ERF, "s = Erf(h)"),
    "Softsign": (SOFTSIGN, "s = Softsign(h)"),
    "Softplus": (SOFTPLUS, "s = Softplus(h)"),
    "Elu": (elu(1.5), "s = Elu <alpha = 1.5> (h)"),
    "Selu": (selu(), "s = Selu(h)"),
    "Celu": (celu(0.5), "s = Celu <alpha = 0.5> (h)"),
    "Mish": (MISH, "s = Mish(h)"),
    "Gelu": (GELU, "s = Gelu(h)"),
    "Gelu, several nodes": (
        GELU,
        "a = Mul(h, root) e = Erf(a) f = Add(e, one) g = Mul(h, f) s = Mul(g, half)",
    ),
    "TanhGelu": (TANH_GELU, 's = Gelu <approximate = "tanh"> (h)'),
    "Silu": (silu(), "g = Sigmoid(h) s = Mul(h, g)"),
    "Sin": (SIN, "s = Sin(h)"),
    "Polynomial": (polynomial((0.0, 0.0, 0.0, 1.0)), "q = Mul(h, h) s = Mul(q, h)"),
}
"""Activations, and the nodes that compute s from h."""
NUMBERS = {"low": -0.5, "root": np.sqrt(0.5), "one": 1.0, "half": 0.5}
"""The constants of these nodes."""
NEWEST_OPSET = 20
"""The first one with Gelu (ONNX)."""


def found_and_certified(
    depth: int, seed: int, spelled: str = "square", exact: bool = False
) -> tuple[float, float]:
    """The largest change that is found for a random network, and the largest that may exist."""
    rng = np.random.default_rng((depth, seed))
    row = SPELLED[spelled][0]
    before = random_network(depth, rng, row)
    if exact:
        before, after = tuple(map(doubled, before)), before
    else:
        after = tuple(shaken(layer, rng) for layer in before)
    old, new = (Graph(as_model(network, spelled)) for network in (before, after))
    certificate = certify(old, new, {"x": (-1.0, 1.0)})
    if certificate.unavailable:
        raise ValueError(f"network {seed} of {depth} layers: {certificate.unavailable}")
    return searched(before, after, rng), certificate.largest


def doubled(layer: Layer) -> Layer:
    """The layer with every neuron twice, the outgoing weights shared between both."""
    twice = layer.only(np.tile(np.arange(layer.neurons), 2))
    return replace(twice, outgoing=twice.outgoing / 2)


def exceeded(found: float, certified: float) -> bool:
    """Whether a change is larger than certified, by more than rounding explains."""
    return found > certified * (1 + RELATIVE) + ABSOLUTE


def random_network(depth: int, rng: np.random.Generator, row: Activation = SQUARE) -> Network:
    """Layers with 1 to 4 inputs and outputs and 1 to 6 neurons."""
    widths, neurons = rng.integers(1, 5, depth + 1), rng.integers(1, 7, depth)
    shapes = zip(widths[:-1], widths[1:], neurons, strict=True)
    found = []
    for d, m, n in shapes:
        own = tuple(rng.choice([0.5, -0.25], n) for _ in range(row.parameters))
        weights = rng.normal(size=(n, d + 1)), rng.normal(size=(m, n)), rng.normal(size=m)
        found.append(Layer(*weights, row, own).stored_as(np.float32))
    return tuple(found)


def shaken(layer: Layer, rng: np.random.Generator) -> Layer:
    """The layer with fewer neurons or other weights."""
    kept = np.sort(rng.permutation(layer.neurons)[: rng.integers(1, layer.neurons + 1)])
    noise = rng.choice([0.0, 0.01, 0.3]) * rng.normal(size=(len(kept), layer.inputs + 1))
    changed = layer.only(kept)
    changed = replace(changed, incoming=changed.incoming + noise)
    return changed.stored_as(np.float32)


def as_model(network: Network, spelled: str = "square") -> ModelProto:
    """The layers as Gemm → activation → Gemm, one after the other."""
    body, value, text = "", "x", SPELLED[spelled][1]
    stored = {name: a for name, a in NUMBERS.items() if re.search(rf"\b{name}\b", text)}
    for i, layer in enumerate(network):
        made = "y" if i == len(network) - 1 else f"o{i}"
        inner = re.sub(r"\b([a-hqrs]|P)\b(?= =|[,)])", rf"\g<1>{i}", text)
        body += (
            f"[m{i}] h{i} = Gemm <transB = 1> ({value}, W{i}, b{i}) {inner} "
            f"[z{i}] {made} = Gemm <transB = 1> (s{i}, V{i}, c{i}) "
        )
        arrays = (layer.incoming[:, :-1], layer.incoming[:, -1], layer.outgoing, layer.offset)
        stored |= {f"{name}{i}": a for name, a in zip("WbVc", arrays, strict=True)}
        stored |= {f"P{i}": a for a in layer.unit_parameters}
        value = made
    ends = f"float[N,{network[0].inputs}] x) => (float[N,{network[-1].outputs}] y"
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["": {NEWEST_OPSET}]> g ({ends}) {{ {body} }}'
    )
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(a, dtype=np.float32, order="C"), name)
        for name, a in stored.items()
    )
    return model


def searched(before: Network, after: Network, rng: np.random.Generator) -> float:
    """The largest change of any output at random inputs, corners and what gradients lead to."""
    width = before[0].inputs
    x = np.vstack([rng.uniform(-1, 1, (STARTS, width)), rng.choice([-1.0, 1.0], (STARTS, width))])
    worst = 0.0
    for step in STEPS:
        (old, old_slope), (new, new_slope) = with_slopes(before, x), with_slopes(after, x)
        change = new - old
        worst = max(worst, float(np.abs(change).max()))
        k = np.abs(change).argmax(axis=1)
        rows = np.arange(len(x))
        slope = (new_slope - old_slope)[rows, k] * np.sign(change[rows, k])[:, None]
        x = np.clip(x + step * np.sign(slope), -1, 1)
    return worst


def with_slopes(network: Network, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The outputs of a network for rows of inputs, and their derivatives by the inputs."""
    slope = np.broadcast_to(np.eye(x.shape[1]), (len(x), x.shape[1], x.shape[1]))
    for layer in network:
        weight = layer.incoming[:, :-1]
        hidden = x @ weight.T + layer.incoming[:, -1]
        steep = layer.activation.slope(hidden, *layer.unit_parameters)
        slope = (layer.outgoing * steep[:, None, :]) @ (weight @ slope)
        x = layer(x)
    return x, slope


def main() -> int:
    """Search as many networks of each depth as are asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", type=int, nargs="?", default=2000, help="networks in all")
    parser.add_argument("--activation", choices=SPELLED, help="one activation, not all of them")
    options = parser.parse_args()
    names = [options.activation] if options.activation else list(SPELLED)
    kinds = [(name, depth, exact) for name in names for depth in DEPTHS for exact in (False, True)]
    failures = sum(searched_kind(*kind, max(1, options.models // len(kinds))) for kind in kinds)
    return 1 if failures else 0


def searched_kind(name: str, depth: int, exact: bool, count: int) -> int:
    """How many networks of one kind exceed their certificate."""
    pairs = [found_and_certified(depth, seed, name, exact) for seed in range(count)]
    beyond = [seed for seed, pair in enumerate(pairs) if exceeded(*pair)]
    shares = [found / certified for found, certified in pairs if certified > 0]
    print(
        f"{name}, {depth} layers, {count} networks{', exact' if exact else ''}: {len(beyond)} "
        f"certificates exceeded {beyond[:10]}; found / certified: median "
        f"{np.median(shares or [0]):.3g}, largest {max(shares, default=0):.3g}, largest "
        f"certificate {max(certified for _, certified in pairs):.3g}"
    )
    return len(beyond)


if __name__ == "__main__":
    sys.exit(main())
