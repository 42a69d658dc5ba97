"""The passes: one file each, every pass a frozen dataclass."""

from onnxfde.passes.base import LayerChange, PassResult, Work
from onnxfde.passes.merge_neurons import MergeNeurons

__all__ = ["LayerChange", "MergeNeurons", "PassResult", "Work"]
