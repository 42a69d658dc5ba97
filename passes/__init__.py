"""The passes: one file each, every pass a frozen dataclass."""

from onnxfde.passes.base import LayerChange, Pass, PassResult, Work
from onnxfde.passes.merge_neurons import MergeNeurons

__all__ = ["LayerChange", "MergeNeurons", "Pass", "PassResult", "Work"]
