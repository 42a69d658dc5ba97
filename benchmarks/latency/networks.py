"""The networks to time, each in all its variants, made once and kept in the cache.

The plain ones are planted: a tenth of the neurons are drawn at random, the others are copies of
them, scaled and with 1 % noise, so that merging them is no nonsense. Their time depends on their
shape only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import onnxfde
from benchmarks.cryptonets import images
from benchmarks.paper.networks import trained
from benchmarks.tasks import mnist_rows, shared_file

CACHE = Path(__file__).parents[1] / ".cache" / "latency"
SHAPES = ((64, 256), (128, 512), (256, 1024), (512, 4096), (1024, 8192))
SHARES = (50, 25, 10)
COPIES, NOISE = 10, 0.01
TRAIN_IMAGES = 1000


@dataclass(frozen=True, eq=False)
class Net:
    """A network, how to merge it, and the data that needs."""

    name: str
    path: Path
    options: dict[str, Any]
    free_batch: bool = True
    planted: bool = False


def planted(inputs: int, neurons: int, seed: int = 0) -> onnx.ModelProto:
    """Gemm → Mul(h, h) → Gemm in which every neuron is there about ten times."""
    rng = np.random.default_rng(seed)
    distinct = -(-neurons // COPIES)
    which = np.arange(neurons) % distinct
    rows = rng.normal(size=(distinct, inputs))[which] / np.sqrt(inputs)
    rows += NOISE * rng.normal(size=rows.shape) / np.sqrt(inputs)
    outgoing = rng.normal(size=(inputs, neurons)) / np.sqrt(neurons)
    weights = {
        "W": rows,
        "b": rng.normal(size=distinct)[which] / 4,
        "V": outgoing,
        "c": rng.normal(size=inputs),
    }
    tensors = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()]
    nodes = [
        helper.make_node("Gemm", ["x", "W", "b"], ["h"], "first", transB=1),
        helper.make_node("Mul", ["h", "h"], ["s"], "square"),
        helper.make_node("Gemm", ["s", "V", "c"], ["y"], "second", transB=1),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", inputs]) for name in "xy"]
    graph = helper.make_graph(nodes, "planted", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def nets() -> list[Callable[[], Net]]:
    """How to get every network."""
    plain = [partial(planted_net, d, n) for d, n in SHAPES]
    return [*plain, cryptonets, third_variant]


def planted_net(inputs: int, neurons: int) -> Net:
    """A planted network from the cache."""
    name = f"{inputs}-{neurons}-{inputs}"
    path = CACHE / name / "original.onnx"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(planted(inputs, neurons), path)
    return Net(name, path, {"quotient": "refit"}, planted=True)


def cryptonets() -> Net:
    """A real network for homomorphic encryption; its batch is 1."""
    data = {"input": images(mnist_rows().x_train[:TRAIN_IMAGES])}
    path = shared_file("models/cryptonets_square.onnx")
    return Net("cryptonets_square", path, {"data": data}, free_batch=False)


def third_variant() -> Net:
    """The paper's deepest: glycolysis, four layers 7-120-7."""
    net = trained("GLY", 3, 0)
    return Net("GLY-variant-3", net.path, {"data": {"x": net.rows.x_train[:TRAIN_IMAGES]}})


def variants(net: Net) -> dict[str, Path]:
    """A network as it is, merged, pruned to as many nonzero weights, and in int8."""
    folder = CACHE / net.name
    folder.mkdir(parents=True, exist_ok=True)
    found = {"original": net.path}
    for share in SHARES:
        merged = made(folder / f"merged-{share}.onnx", partial(merge, net, keep=share / 100))
        found[f"merged to {share} %"] = merged
    for share in SHARES:
        like = found[f"merged to {share} %"]
        pruned = made(folder / f"pruned-{share}.onnx", partial(prune, net.path, like))
        found[f"pruned like {share} %"] = pruned
    int8 = partial(merge, net, skip=("*",), int8="dynamic")
    found["int8"] = made(folder / "int8.onnx", int8)
    for share in SHARES:
        if net.planted:
            both = partial(quantize, found[f"merged to {share} %"])
        else:
            both = partial(merge, net, keep=share / 100, int8="dynamic")
        small = made(folder / f"merged-{share}-int8.onnx", both)
        found[f"merged to {share} %, int8"] = small
    return found


def made(path: Path, make: Callable[[Path], None]) -> Path:
    """A file, from the cache or made now."""
    if not path.exists():
        print(f"making {path.parent.name}/{path.name}", flush=True)
        make(path)
    return path


def merge(net: Net, path: Path, **options: Any) -> None:
    """By onnxfde."""
    onnxfde.optimize(net.path, **net.options, **options, certify=False).save(path)


def quantize(path: Path, target: Path) -> None:
    """What is merged already, in 8 bits: merging it again would take minutes and not differ."""
    onnxfde.optimize(path, skip=("*",), int8="dynamic").save(target)


def prune(path: Path, like: Path, target: Path) -> None:
    """Set the smallest weights of all matrices to zero, until as many are left as in another."""
    model = onnx.load(path)
    matrices = [t for t in model.graph.initializer if len(t.dims) > 1]
    arrays = [numpy_helper.to_array(t) for t in matrices]
    kept = sum(
        np.count_nonzero(numpy_helper.to_array(t))
        for t in onnx.load(like).graph.initializer
        if len(t.dims) > 1
    )
    sizes = np.concatenate([np.abs(a).ravel() for a in arrays])
    least = np.partition(sizes, sizes.size - kept)[sizes.size - kept]
    for tensor, array in zip(matrices, arrays, strict=True):
        tensor.CopyFrom(numpy_helper.from_array(array * (np.abs(array) >= least), tensor.name))
    onnx.save(model, target)
