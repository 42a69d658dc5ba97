"""Structured pruning, the alternative to merging neurons: by magnitude, and with other tools.

`magnitude`, `onnxsim` and `torch_pruning` take a model with one square layer and a number of
neurons, and return the model with that many neurons, or with as many as the tool leaves. The tools
need `pip install --no-deps onnxsim torch-pruning`.
"""

from __future__ import annotations

from importlib import import_module

import numpy as np
import onnx

from benchmarks.common.layers import only_layer, with_layer
from benchmarks.common.square_networks import square_layers
from onnxfde.neurons.layer import Layer


def strongest(layer: Layer, neurons: int) -> Layer:
    """The neurons with the largest ‖u_i‖²·‖V_i‖; nothing makes up for the others."""
    strength = (layer.incoming**2).sum(axis=1) * np.linalg.norm(layer.outgoing, axis=0)
    kept = np.sort(np.argsort(-strength, kind="stable")[:neurons])
    return Layer(layer.incoming[kept], layer.outgoing[:, kept], layer.offset)


def magnitude(model: onnx.ModelProto, neurons: int) -> onnx.ModelProto:
    """Keep the strongest neurons."""
    return with_layer(model, strongest(only_layer(model), neurons))


def onnxsim(model: onnx.ModelProto, neurons: int) -> onnx.ModelProto:
    """Prune with `apply_structured_pruning` of onnxsim."""
    prune = import_module("onnxsim").apply_structured_pruning
    pruned: onnx.ModelProto = prune(model, sparsity=1 - neurons / only_layer(model).neurons)
    return pruned


def torch_pruning(model: onnx.ModelProto, neurons: int) -> onnx.ModelProto:
    """Torch-Pruning's magnitude pruner, on the layer in torch and then written back."""
    import torch

    pruning, layer = import_module("torch_pruning"), only_layer(model)
    net = square_layers((layer.inputs, layer.neurons, layer.outputs))
    first, _, last = net
    with torch.no_grad():
        first.weight.copy_(torch.from_numpy(layer.incoming[:, :-1]))
        first.bias.copy_(torch.from_numpy(layer.incoming[:, -1]))
        last.weight.copy_(torch.from_numpy(layer.outgoing))
    pruning.pruner.MagnitudePruner(
        net,
        torch.zeros(1, layer.inputs),
        importance=pruning.importance.MagnitudeImportance(p=2),
        pruning_ratio=1 - (neurons + 0.5) / layer.neurons,  # it rounds the number it keeps down
        ignored_layers=[last],
    ).step()
    weight, bias, outgoing = (
        p.detach().double().numpy() for p in (first.weight, first.bias, last.weight)
    )
    return with_layer(model, Layer(np.column_stack([weight, bias]), outgoing, layer.offset))
