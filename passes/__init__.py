"""Passes over a graph: one file per pass, each pass a frozen dataclass."""

from onnxfde.passes.fold_affine import FoldAffine
from onnxfde.passes.merge_neurons import MergeNeurons
from onnxfde.passes.quantize import Quantize
from onnxfde.passes.result import Context, Fold, LayerChange, Pass, PassResult

__all__ = [
    "Context",
    "Fold",
    "FoldAffine",
    "LayerChange",
    "MergeNeurons",
    "Pass",
    "PassResult",
    "Quantize",
]
