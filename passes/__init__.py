"""The passes: one file each, every pass a frozen dataclass."""

from onnxfde.passes.fold_affine import FoldAffine
from onnxfde.passes.merge_neurons import MergeNeurons
from onnxfde.passes.result import Fold, LayerChange, PassResult
from onnxfde.progress import Work

__all__ = ["Fold", "FoldAffine", "LayerChange", "MergeNeurons", "PassResult", "Work"]
