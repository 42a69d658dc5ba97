"""An ONNX file as a torch network with the same weights, for Torch-Pruning.

Every Conv and Gemm becomes a module that reads what the node reads; the other nodes are functions.
After pruning, the smaller weights go back into a copy of the file, so that all methods are measured
in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.channels.peers import (
    NotPossibleError,
    channel_counts,
    largest_share,
    macs_of,
)
from onnxfde.graph.find_axes import find_axes
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import attributes
from onnxfde.numbers import Array

AGREE = 1e-4
"""How far the copy's outputs may be from the file's, relative to the largest."""


def module_of(node: onnx.NodeProto, tensors: dict[str, Array]) -> Any:
    """A Conv or Gemm as a module; `padded` adds the zeros that a Conv has on one side only."""
    from torch import from_numpy, nn

    weight, options = tensors[node.input[1]].copy(), attributes(node)
    if node.op_type == "Gemm":
        weight = weight if options.get("transB") else weight.T.copy()
        found: Any = nn.Linear(weight.shape[1], weight.shape[0])
    else:
        groups = options.get("group", 1)
        found = nn.Conv2d(
            weight.shape[1] * groups, weight.shape[0], weight.shape[2:],
            stride=tuple(options.get("strides", (1, 1))), groups=groups,
            padding=tuple(np.minimum(*np.reshape(options.get("pads", [0] * 4), (2, 2))).tolist()),
        )  # fmt: skip
    found.weight.data = from_numpy(weight)
    bias = tensors[node.input[2]].copy() if len(node.input) > 2 else np.zeros(len(weight), "f4")
    found.bias.data = from_numpy(bias)
    return found


def padded(node: onnx.NodeProto, x: Any) -> Any:
    """Zeros that a Conv has on one side only."""
    import torch

    before, after = np.reshape(attributes(node).get("pads", [0] * 4), (2, 2))
    top, left = before - np.minimum(before, after)
    bottom, right = after - np.minimum(before, after)
    if not np.any(before != after):
        return x
    return torch.nn.functional.pad(x, (int(left), int(right), int(top), int(bottom)))


def sliced(node: onnx.NodeProto, tensors: dict[str, Array], x: Any) -> Any:
    """Slice along some axes."""
    starts, ends, axes, steps = (tensors[name].tolist() for name in node.input[1:5])
    index = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        index[axis] = slice(start, min(end, x.shape[axis]), step)
    return x[tuple(index)]


def pad_constant(node: onnx.NodeProto, tensors: dict[str, Array], x: Any) -> Any:
    """Pad with zeros."""
    import torch

    before, after = tensors[node.input[1]].reshape(2, -1).tolist()
    ends = [n for pair in zip(reversed(before), reversed(after), strict=True) for n in pair]
    return torch.nn.functional.pad(x, ends)


def functions() -> dict[str, Callable[..., Any]]:
    """What the other nodes do; each takes the node, the constants and its values."""
    import torch.nn.functional as f

    def pool(kind: Callable[..., Any]) -> Callable[..., Any]:
        return lambda n, t, x: kind(x, attributes(n)["kernel_shape"], attributes(n).get("strides"))

    return {
        "Relu": lambda n, t, x: f.relu(x),
        "Clip": lambda n, t, x: x.clamp(*(float(t[name]) for name in n.input[1:3])),
        "Add": lambda n, t, x, y: x + y,
        "Slice": sliced,
        "Pad": pad_constant,
        "AveragePool": pool(f.avg_pool2d),
        "MaxPool": pool(f.max_pool2d),
        "GlobalAveragePool": lambda n, t, x: x.mean((2, 3), keepdim=True),
        "ReduceMean": lambda n, t, x: x.mean(
            (2, 3), keepdim=bool(attributes(n).get("keepdims", 1))
        ),
        "Flatten": lambda n, t, x: x.flatten(1),
        "Reshape": lambda n, t, x: x.flatten(1),
        "Softmax": lambda n, t, x: x.softmax(1),
    }


def torch_network(model: onnx.ModelProto) -> Any:
    """The network in torch; NotPossibleError if it has an operator that is not in the table."""
    from torch import nn

    tensors = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    known = functions()
    missing = {n.op_type for n in model.graph.node} - {*known, "Conv", "Gemm"}
    if missing:
        raise NotPossibleError(f"no torch copy of {', '.join(sorted(missing))}")

    class Copy(nn.Module):  # type: ignore[misc]  # torch is not typed here
        """Runs the nodes in their order."""

        def __init__(self) -> None:
            super().__init__()
            nodes = (n for n in model.graph.node if n.op_type in ("Conv", "Gemm"))
            self.parts = nn.ModuleDict({module_name(n): module_of(n, tensors) for n in nodes})

        def forward(self, x: Any) -> Any:
            values = {model.graph.input[0].name: x}
            for node in model.graph.node:
                if node.op_type in ("Conv", "Gemm"):
                    made = values[node.input[0]]
                    made = padded(node, made) if node.op_type == "Conv" else made
                    values[node.output[0]] = self.parts[module_name(node)](made)
                else:
                    read = [values[name] for name in node.input if name in values]
                    values[node.output[0]] = known[node.op_type](node, tensors, *read)
            return values[model.graph.output[0].name]

    return Copy().eval()


def module_name(node: onnx.NodeProto) -> str:
    """The name of a node's module; torch allows no dots."""
    return node.output[0].replace(".", "_")


def checked_network(path: Path, x: Array) -> Any:
    """The torch copy of a file, whose outputs agree with those of onnxruntime."""
    import torch

    from benchmarks.common.scores import outputs_of

    torch.set_num_threads(1)
    model = onnx.load(path)
    net = torch_network(model)
    with torch.no_grad():
        found = net(torch.from_numpy(x)).numpy()
    wanted = outputs_of(model, x)[0]
    if np.abs(found - wanted).max() > AGREE * np.abs(wanted).max():
        raise NotPossibleError("the torch copy computes something else")
    return net


def written_back(path: Path, net: Any) -> onnx.ModelProto:
    """The file with the weights of the network, smaller by now."""
    model = onnx.load(path)
    tensors = {t.name: t for t in model.graph.initializer}
    del model.graph.value_info[:]
    for node in model.graph.node:
        if node.op_type == "Reshape":
            flattened(node, tensors)
        if node.op_type not in ("Conv", "Gemm"):
            continue
        part = net.parts[module_name(node)]
        weight = part.weight.detach().numpy()
        if node.op_type == "Gemm" and not attributes(node).get("transB"):
            weight = weight.T
        for name, values in zip(node.input[1:], (weight, part.bias.detach().numpy()), strict=False):
            tensors[name].CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values), name))
        for attribute in node.attribute:
            if attribute.name == "group":
                attribute.i = part.groups
    return model


def flattened(node: onnx.NodeProto, tensors: dict[str, onnx.TensorProto]) -> None:
    """Let a Reshape to rows take rows of any width."""
    rows = numpy_helper.from_array(np.array([0, -1]), node.input[1])
    tensors[node.input[1]].CopyFrom(rows)
    del node.attribute[:]


def torch_pruned(path: Path, x: Array, size: str) -> onnx.ModelProto:
    """Torch-Pruning's magnitude pruner, for the channels of the axes only."""
    net, graph = checked_network(path, x), Graph(onnx.load(path))
    axes = find_axes(graph)[0]
    counts = channel_counts(graph, axes, size)
    kept = {net.parts[module_name(a.producer.node)]: (counts[a.name], a.units) for a in axes}
    inner = {net.parts[module_name(i.node)] for a in axes for i in a.inner if i.depthwise}
    ratios = {part: 1 - (count + 0.5) / units for part, (count, units) in kept.items()
              if count < units}  # fmt: skip
    ignored = [p for p in net.parts.values() if p not in ratios and p not in inner]
    prune(net, x, ratio=0.0, ratios=ratios, ignored=ignored)
    return written_back(path, net)


def torch_pruned_everywhere(path: Path, x: Array, size: str) -> onnx.ModelProto:
    """The same for all channels but those of the output, as its users call it."""
    if size.endswith("of each"):
        raise NotPossibleError("compared at limits of multiply-adds only")
    if any(node.op_type == "Pad" for node in onnx.load(path).graph.node):
        raise NotPossibleError("it cannot prune a stream whose channels are padded")

    def pruned(share: float) -> onnx.ModelProto:
        net = checked_network(path, x)
        prune(net, x, ratio=1 - share, ratios={}, ignored=[list(net.parts.values())[-1]])
        return written_back(path, net)

    whole = macs_of(onnx.load(path))
    return pruned(largest_share(size, lambda share: macs_of(pruned(share)), whole))


def prune(net: Any, x: Array, ratio: float, ratios: dict[Any, float], ignored: list[Any]) -> None:
    """One step of the pruner, in place."""
    import torch

    pruning = import_module("torch_pruning")
    pruning.pruner.MagnitudePruner(
        net,
        torch.from_numpy(x[:1]),
        importance=pruning.importance.MagnitudeImportance(p=2),
        pruning_ratio=ratio,
        pruning_ratio_dict=ratios,
        ignored_layers=ignored,
        round_to=None,
    ).step()
