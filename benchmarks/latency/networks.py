"""The networks to time, each in all its variants, made once and kept in the cache.

In the planted networks, a tenth of the neurons are random and the others are copies of them with
1 % noise, so that merging makes sense. Their time depends on their shape only.
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
from benchmarks.common import paper_networks
from benchmarks.common.cryptonets_square import cryptonets_known, cryptonets_path
from benchmarks.common.folders import CACHE

SHAPES = ((64, 256), (128, 512), (256, 1024), (512, 4096), (1024, 8192))
"""Inputs (and outputs) and neurons of the planted networks; chosen."""
SHARES = (50, 25, 10)
"""Percent of the neurons that merging keeps; chosen."""
COPIES = 10
"""About how often each neuron of a planted network occurs; the smallest share keeps one of each."""
NOISE = 0.01
"""The noise of the copies, relative to the incoming weights; chosen."""
KNOWN = 1000
"""Unlabelled training inputs to merge the real networks with; chosen."""


@dataclass(frozen=True, eq=False)
class Net:
    """A network, and the options (with data, where it needs some) to merge it with."""

    name: str
    path: Path
    options: dict[str, Any]
    free_batch: bool = True
    planted: bool = False


def planted(inputs: int, neurons: int, seed: int = 0) -> onnx.ModelProto:
    """Gemm → Mul(h, h) → Gemm in which every neuron occurs about ten times."""
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


def nets() -> dict[str, Callable[[], Net]]:
    """A function for every network, by its name: each is made only when it is measured."""
    planted_nets = {f"{d}-{n}-{d}": partial(planted_net, d, n) for d, n in SHAPES}
    return {**planted_nets, "cryptonets_square": cryptonets, "GLY-variant-3": third_variant}


def planted_net(inputs: int, neurons: int) -> Net:
    """A planted network from the cache."""
    name = f"{inputs}-{neurons}-{inputs}"
    path = cache_folder(name) / "original.onnx"
    if not path.exists():
        onnx.save(planted(inputs, neurons), path)
    return Net(name, path, {"quotient": "refit"}, planted=True)


def cryptonets() -> Net:
    """A real network for homomorphic encryption; its batch is fixed at 1."""
    options = {"data": cryptonets_known(KNOWN)}
    return Net("cryptonets_square", cryptonets_path(), options, free_batch=False)


def third_variant() -> Net:
    """The paper's deepest network: glycolysis, four times 7-120-7."""
    net = paper_networks.trained("GLY", 3, 0)
    return Net("GLY-variant-3", net.path, {"data": {"x": net.rows.x_train[:KNOWN]}})


def cache_folder(name: str) -> Path:
    """The folder of a network's files."""
    folder = CACHE / "latency" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def variants(net: Net) -> dict[str, Path]:
    """The files of a network: original, merged, pruned to as many nonzero weights, and int8."""
    folder = cache_folder(net.name)
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
    """Merge a network with onnxfde."""
    onnxfde.optimize(net.path, **net.options, **options, certify=False).save(path)


def quantize(path: Path, target: Path) -> None:
    """Quantize a merged network; merging the original again would take minutes and not differ."""
    onnxfde.optimize(path, skip=("*",), int8="dynamic").save(target)


def prune(path: Path, like: Path, target: Path) -> None:
    """Set the smallest weights to zero until as many are left as in the matrices of `like`."""
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
