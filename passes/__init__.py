"""The passes: one file each, every pass a frozen dataclass."""

from onnxfde.passes.base import Fold, LayerChange, PassResult, Work
from onnxfde.passes.fold_affine import FoldAffine
from onnxfde.passes.merge_neurons import MergeNeurons

__all__ = ["Fold", "FoldAffine", "LayerChange", "MergeNeurons", "PassResult", "Work"]
