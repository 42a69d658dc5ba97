"""What every pass takes and gives: a graph goes in, a `PassResult` says what changed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from onnxfde.graph.match import LayerSize, Refusal
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.numbers import Blocks
from onnxfde.progress import Progress
from onnxfde.running.input_source import InputSource

WIDTH = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
"""Bytes of a number by its type."""


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

    def undone(self) -> LayerChange:
        """The layer as it is when the change is not made after all."""
        return replace(
            self,
            neurons_after=self.neurons_before,
            parameters_after=self.parameters_before,
            blocks=tuple((i,) for i in range(self.neurons_before)),
            error=0.0,
            lower_bound=None,
            measured_error=0.0,
        )


@dataclass(frozen=True)
class Fold:
    """Two affine maps that became one, and the parameters that the model stores for them."""

    first: str
    second: str
    parameters_before: int
    parameters_after: int
    """Of the one map, and of the old weights that something else still reads."""
    dtype: str


@dataclass(frozen=True, eq=False)
class PassResult:
    """The graph after a pass (the very same one if nothing changed) and what happened to it."""

    graph: Graph
    layers: tuple[LayerChange, ...] = ()
    """What became of the layers that were to be changed."""
    refused: tuple[Refusal, ...] = ()
    """Activations that belong to no layer that could be changed."""
    folded: tuple[Fold, ...] = ()
    unfolded: tuple[Refusal, ...] = ()
    """Affine maps side by side that stay two."""
    small_weights: int = 0
    """How many weights were put into 8 bits."""
    found: tuple[LayerSize, ...] = ()
    """All layers of the graph before the pass, whether they were to be changed or not."""

    @property
    def model(self) -> ModelProto:
        """The model after the pass."""
        return self.graph.model

    @property
    def changed(self) -> bool:
        """Whether the pass changed anything."""
        layers = any(layer.changed for layer in self.layers)
        return layers or bool(self.folded) or bool(self.small_weights)

    def then(self, after: PassResult) -> PassResult:
        """What this pass and another one after it did together."""
        return PassResult(
            graph=after.graph,
            layers=self.layers + after.layers,
            refused=self.refused + after.refused,
            folded=self.folded + after.folded,
            unfolded=self.unfolded + after.unfolded,
            small_weights=self.small_weights + after.small_weights,
            found=self.found + after.found,
        )


@dataclass(frozen=True, eq=False)
class Context:
    """What a pass may know besides the graph, and what it remembers for the next time."""

    inputs: InputSource = field(default_factory=InputSource)
    progress: Progress = field(default_factory=Progress)
    memory: dict[Any, Any] | None = None
    """Where passes keep what they have worked out, so that applying one again to the same graph
    with another ε is quick; None to keep nothing."""


class Pass(Protocol):
    """Changes a graph; a frozen dataclass whose fields are its options."""

    @property
    def name(self) -> str:
        """What the pass is called."""

    def apply(self, graph: Graph, context: Context | None = None) -> PassResult:
        """A changed copy of the graph, or the graph itself if there is nothing to change."""
