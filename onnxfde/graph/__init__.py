"""The only door to onnx: read a model, find layers in it, edit it, write it."""

from onnxfde.graph.model import Graph

__all__ = ["Graph"]
