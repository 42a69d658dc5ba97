"""The square layers of a model: finding them, and putting others in their place."""

from __future__ import annotations

import onnx

from onnxfde.graph.edit import write_layer
from onnxfde.graph.match import Match, find_layers
from onnxfde.graph.model import Graph
from onnxfde.graph.tensors import copy_of
from onnxfde.neurons.layer import Layer


def layers_of(model: onnx.ModelProto) -> list[Match]:
    """The square layers that can be merged, in graph order."""
    return find_layers(Graph(model))[0]


def only_layer(model: onnx.ModelProto) -> Layer:
    """The layer of a model that has exactly one."""
    (match,) = layers_of(model)
    return match.layer


def widths(model: onnx.ModelProto) -> list[int]:
    """The number of neurons in each square layer."""
    return [match.layer.neurons for match in layers_of(model)]


def with_layer(model: onnx.ModelProto, layer: Layer, at: int = 0) -> onnx.ModelProto:
    """A copy of the model with its square layer number `at` replaced."""
    graph = Graph(copy_of(model))
    write_layer(graph, find_layers(graph)[0][at], layer)
    return graph.model
