"""Is a certificate ever exceeded? Random networks against the worst inputs that a search finds.

`python -m benchmarks.certificate_soundness 2000`: networks of one and of two square layers, each
compared with a copy that has fewer neurons or other weights. The inputs are random, corners of the
box, and both again after steps along the sign of the gradient. Exits with 1 if one of them changes
an output by more than the certificate allows.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import onnx
from onnx import numpy_helper

from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.neurons.layer import Layer
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


def found_and_certified(depth: int, seed: int) -> tuple[float, float]:
    """The largest change that is found for a random network, and the largest that may exist."""
    rng = np.random.default_rng((depth, seed))
    before = random_network(depth, rng)
    after = tuple(shaken(layer, rng) for layer in before)
    graphs = Graph(as_model(before)), Graph(as_model(after))
    certificate = certify(*graphs, {"x": (-1.0, 1.0)})
    if certificate.unavailable:
        raise ValueError(f"network {seed} of {depth} layers: {certificate.unavailable}")
    return searched(before, after, rng), certificate.largest


def exceeded(found: float, certified: float) -> bool:
    """Whether a change is larger than certified, by more than rounding explains."""
    return found > certified * (1 + RELATIVE) + ABSOLUTE


def random_network(depth: int, rng: np.random.Generator) -> Network:
    """Square layers with 1 to 4 inputs and outputs and 1 to 6 neurons."""
    widths, neurons = rng.integers(1, 5, depth + 1), rng.integers(1, 7, depth)
    shapes = zip(widths[:-1], widths[1:], neurons, strict=True)
    return tuple(
        Layer(rng.normal(size=(n, d + 1)), rng.normal(size=(m, n)), rng.normal(size=m)).stored_as(
            np.float32
        )
        for d, m, n in shapes
    )


def shaken(layer: Layer, rng: np.random.Generator) -> Layer:
    """The layer with fewer neurons or other weights."""
    kept = np.sort(rng.permutation(layer.neurons)[: rng.integers(1, layer.neurons + 1)])
    noise = rng.choice([0.0, 0.01, 0.3]) * rng.normal(size=(len(kept), layer.inputs + 1))
    changed = Layer(layer.incoming[kept] + noise, layer.outgoing[:, kept], layer.offset)
    return changed.stored_as(np.float32)


def as_model(network: Network) -> ModelProto:
    """The layers as Gemm → Mul → Gemm, one after the other."""
    body, value, tensors = "", "x", []
    for i, layer in enumerate(network):
        made = "y" if i == len(network) - 1 else f"o{i}"
        body += (
            f"[a{i}] h{i} = Gemm <transB = 1> ({value}, W{i}, b{i}) s{i} = Mul(h{i}, h{i}) "
            f"[z{i}] {made} = Gemm <transB = 1> (s{i}, V{i}, c{i}) "
        )
        arrays = (layer.incoming[:, :-1], layer.incoming[:, -1], layer.outgoing, layer.offset)
        for name, a in zip("WbVc", arrays, strict=True):
            stored = np.ascontiguousarray(a, dtype=np.float32)
            tensors.append(numpy_helper.from_array(stored, f"{name}{i}"))
        value = made
    ends = f"float[N,{network[0].inputs}] x) => (float[N,{network[-1].outputs}] y"
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 17]> g ({ends}) {{ {body} }}'
    )
    model.graph.initializer.extend(tensors)
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
        slope = (layer.outgoing * (2 * hidden)[:, None, :]) @ (weight @ slope)
        x = layer(x)
    return x, slope


def main() -> int:
    """Search as many networks of each depth as are asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", type=int, nargs="?", default=2000, help="networks in all")
    per_depth = parser.parse_args().models // len(DEPTHS)
    failures = 0
    for depth in DEPTHS:
        pairs = [found_and_certified(depth, seed) for seed in range(per_depth)]
        beyond = [seed for seed, pair in enumerate(pairs) if exceeded(*pair)]
        shares = [found / certified for found, certified in pairs if certified > 0]
        failures += len(beyond)
        print(
            f"{depth} layers, {per_depth} networks: {len(beyond)} certificates exceeded "
            f"{beyond[:10]}; found / certified: median {np.median(shares):.3f}, "
            f"largest {max(shares):.3f}"
        )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
