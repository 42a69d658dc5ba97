"""What every pass takes and gives: a model goes in, a `PassResult` says what changed."""

from __future__ import annotations

from dataclasses import dataclass

from onnxfde.graph.match import Refusal
from onnxfde.graph.protos import ModelProto
from onnxfde.numbers import Blocks

WIDTH = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class LayerChange:
    """One layer before and after a pass."""

    name: str
    inputs: int
    outputs: int
    neurons_before: int
    neurons_after: int
    neurons_lossless: int | None
    """How many neurons compute the same up to rounding, where that was looked for."""
    parameters_before: int
    parameters_after: int
    blocks: Blocks
    eps: float | None
    error: float
    """Relative change of the centred output in the metric."""
    lower_bound: float | None
    """No layer with as few neurons has a smaller error; None where nothing is known."""
    measured_error: float
    """The same change on real inputs of the layer, for minimal on rows that were held out."""
    dtype: str
    useful_eps: float | None = None
    """An ε at which something would merge, when nothing did."""
    remark: str | None = None
    activation: str = "square"

    @property
    def bytes_before(self) -> int:
        """Bytes of its weights."""
        return self.parameters_before * WIDTH[self.dtype]

    @property
    def bytes_after(self) -> int:
        """Bytes of what is left of them."""
        return self.parameters_after * WIDTH[self.dtype]

    @property
    def changed(self) -> bool:
        """Whether the layer was rewritten."""
        return self.neurons_after != self.neurons_before


@dataclass(frozen=True)
class Fold:
    """Two affine maps that became one, and the parameters that the model stores for them."""

    first: str
    second: str
    parameters_before: int
    parameters_after: int
    """Of the one map, and of the old weights that something else reads still."""
    dtype: str


@dataclass(frozen=True, eq=False)
class PassResult:
    """The model after a pass (the very same one if nothing changed) and what happened to it."""

    model: ModelProto
    layers: tuple[LayerChange, ...]
    refused: tuple[Refusal, ...]
    folded: tuple[Fold, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether any layer was rewritten or any map folded."""
        return bool(self.folded) or any(layer.changed for layer in self.layers)
