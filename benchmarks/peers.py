"""What else makes a square layer smaller: pruning, by hand and with other tools.

Each function takes a model and a count of neurons, and gives the model with that many (or as many
as the tool leaves). Needs `pip install --no-deps onnxsim torch-pruning`, where used.
"""

from __future__ import annotations

from importlib import import_module

import numpy as np
import onnx

from benchmarks.nets import square_net
from onnxfde.graph.edit import write_layer
from onnxfde.graph.match import find_layers
from onnxfde.graph.model import Graph
from onnxfde.graph.tensors import copy_of
from onnxfde.neurons.layer import Layer


def layer_of(model: onnx.ModelProto) -> Layer:
    """The only square layer of a model that can be merged."""
    (match,), _ = find_layers(Graph(model))
    return match.layer


def with_layer(model: onnx.ModelProto, layer: Layer) -> onnx.ModelProto:
    """A copy of the model with another layer in its place."""
    graph = Graph(copy_of(model))
    (match,), _ = find_layers(graph)
    write_layer(graph, match, layer)
    return graph.model


def magnitude(model: onnx.ModelProto, neurons: int) -> onnx.ModelProto:
    """Keep the neurons with the largest ‖u_i‖²·‖V_i‖; nothing makes up for the others."""
    layer = layer_of(model)
    strength = (layer.incoming**2).sum(axis=1) * np.linalg.norm(layer.outgoing, axis=0)
    kept = np.sort(np.argsort(-strength, kind="stable")[:neurons])
    return with_layer(model, Layer(layer.incoming[kept], layer.outgoing[:, kept], layer.offset))


def onnxsim(model: onnx.ModelProto, neurons: int) -> onnx.ModelProto:
    """The structured pruning that onnxsim has in Python."""
    prune = import_module("onnxsim").apply_structured_pruning
    pruned: onnx.ModelProto = prune(model, sparsity=1 - neurons / layer_of(model).neurons)
    return pruned


def torch_pruning(model: onnx.ModelProto, neurons: int) -> onnx.ModelProto:
    """Torch-Pruning's magnitude pruner on the layer in torch, written back into the model."""
    import torch

    pruning, layer = import_module("torch_pruning"), layer_of(model)
    net = square_net(layer.inputs, layer.neurons, layer.outputs)
    first, _, last = net
    with torch.no_grad():
        first.weight.copy_(torch.from_numpy(layer.incoming[:, :-1]))
        first.bias.copy_(torch.from_numpy(layer.incoming[:, -1]))
        last.weight.copy_(torch.from_numpy(layer.outgoing))
    pruning.pruner.MagnitudePruner(
        net,
        torch.zeros(1, layer.inputs),
        importance=pruning.importance.MagnitudeImportance(p=2),
        pruning_ratio=1 - (neurons + 0.5) / layer.neurons,  # it rounds what is left down
        ignored_layers=[last],
    ).step()
    weight, bias, outgoing = (
        p.detach().double().numpy() for p in (first.weight, first.bias, last.weight)
    )
    return with_layer(model, Layer(np.column_stack([weight, bias]), outgoing, layer.offset))
