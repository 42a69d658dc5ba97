"""What every pass takes and returns: a graph goes in, a `PassResult` says what changed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from onnxfde.deadline import Deadline
from onnxfde.estimates import Interval, interval_text
from onnxfde.graph.match import LayerSize, Refusal
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.neurons.layer import Layer
from onnxfde.numbers import Blocks, FloatArray
from onnxfde.options import UnitKind
from onnxfde.progress import Progress
from onnxfde.running.input_source import InputSource

_T = TypeVar("_T")
CURVE_POINTS = 16
"""How many counts of a layer are shown at most. Chosen: enough to see the shape of a curve."""


@dataclass(frozen=True)
class FrontierPoint:
    """What a layer of so many neurons would lose."""

    neurons: int
    error: float
    """In the metric, as of `LayerChange.error`: by a quick method, others may lose less."""
    lower_bound: float | None
    """No layer with so few neurons has a smaller error; None if no bound is known."""


@dataclass(frozen=True)
class LayerChange:
    """One layer before and after a pass."""

    name: str
    inputs: int
    outputs: int
    neurons_before: int
    neurons_after: int
    neurons_lossless: int | None
    """How many neurons compute the same up to rounding; None if the method does not look for it."""
    parameters_before: int
    parameters_after: int
    blocks: Blocks
    eps: float | None
    error: float
    """Relative change of the output in the metric."""
    lower_bound: float | None
    """No layer with so few neurons has a smaller error; None if no bound is known."""
    measured_error: float
    """The same change on sample inputs of the layer; for minimal with data, on held-out rows."""
    dtype: str
    measured_error_interval: Interval | None = None
    """In which it lies for all inputs of this kind, 19 times in 20."""
    measured_rows: int = 0
    """How many samples it was measured on."""
    useful_eps: float | None = None
    """An ε at which something would merge, if nothing did."""
    remark: str | None = None
    kind: UnitKind = "dense"
    """Whether the units that are called neurons here are channels of a convolution."""
    activation: str | None = "square"
    """What acts on each unit; None for channels on which no activation acts."""
    cut: bool = False
    """Whether the time limit ended the search for fewer neurons."""
    range_only: bool = False
    """Whether it is equal to the original, up to rounding, only for inputs in the range given."""
    frontier: tuple[FrontierPoint, ...] = ()
    """The errors of other counts, if they were asked for and are known."""
    own_error: float | None = None
    """The measured error against the same layer as it was behind the same smaller layers, without
    what these bring in; None if that is not known."""
    own_error_interval: Interval | None = None

    @property
    def changed(self) -> bool:
        """Whether the layer was rewritten."""
        return self.neurons_after != self.neurons_before

    @property
    def outcome(self) -> str:
        """What became of the layer, in a few words."""
        units = "channels" if self.kind == "channels" else "neurons"
        if not self.changed:
            return f"{self.neurons_before} {units}, nothing merges"
        error = f"error {self.measured_error:.2g}{interval_text(self.measured_error_interval)}"
        return f"{self.neurons_before} → {self.neurons_after} {units}, {error}"

    def undone(self, original: Layer | None) -> LayerChange:
        """The layer as reported if neither it nor a layer before it is changed after all.

        What was told of channels is what they were before any change.
        """
        inputs = original.inputs if original else self.inputs
        size, same = original.size if original else self.parameters_before, inputs == self.inputs
        return replace(
            self,
            inputs=inputs,
            neurons_after=self.neurons_before,
            neurons_lossless=self.neurons_lossless if same else None,
            parameters_before=size,
            parameters_after=size,
            blocks=tuple((i,) for i in range(self.neurons_before)) if self.kind == "dense" else (),
            eps=None,
            error=0.0,
            lower_bound=None,
            measured_error=0.0,
            measured_error_interval=None,
            measured_rows=0,
            own_error=None,
            own_error_interval=None,
        )


@dataclass(frozen=True)
class Fold:
    """Two affine maps that became one, and how many parameters the model stores for them."""

    first: str
    second: str
    parameters_before: int
    parameters_after: int
    """Those of the one map, and those of old weights that something else still reads."""
    dtype: str


@dataclass(frozen=True, eq=False)
class PassResult:
    """The graph after a pass (the same object if nothing changed) and what changed."""

    graph: Graph
    layers: tuple[LayerChange, ...] = ()
    """The layers that were selected, changed or not."""
    refused: tuple[Refusal, ...] = ()
    """Activations that belong to no layer that could be changed."""
    folded: tuple[Fold, ...] = ()
    unfolded: tuple[Refusal, ...] = ()
    """Affine maps side by side that stay two."""
    small_weights: int = 0
    """How many weight tensors were rounded to 8 bits."""
    found: tuple[LayerSize, ...] = ()
    """All layers of the graph before the pass, selected or not."""

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
        """What this pass and one after it did together."""
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
    """What a pass may know besides the graph, and what it remembers between two applications."""

    inputs: InputSource = field(default_factory=InputSource)
    progress: Progress = field(default_factory=Progress)
    memory: dict[Hashable, Any] | None = None
    """What passes have computed, so that applying one again with another ε is quick; None to keep
    nothing."""

    deadline: Deadline = field(default_factory=Deadline)
    """When searches must end, if the user is in a hurry."""
    reference: Graph | None = None
    """The network whose values are to be kept, if passes before have changed it already."""
    latency: Callable[[Graph], float] | None = None
    """The time that a network takes, likely at most, where that is asked for."""
    stamp_bytes: int = 0
    """Bytes of the record in the result that says how it was made, where bytes are limited."""
    frontiers: bool = False
    """Whether the errors of other counts are to be told of every layer."""

    def remembered(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """What `make` returns; with a memory it is called only once per key."""
        if self.memory is None:
            return make()
        if key not in self.memory:
            self.memory[key] = make()
        found: _T = self.memory[key]
        return found


def curve_counts(units: int) -> list[int]:
    """Some numbers of units from 1 to all but one, each a fixed share more than the last.

    >>> curve_counts(10)
    [1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    most = max(units - 1, 1)
    steps = (most ** (i / (CURVE_POINTS - 1)) for i in range(CURVE_POINTS))
    return sorted({round(step) for step in steps} if most > CURVE_POINTS else range(1, most + 1))


def frontier_of_errors(errors: FloatArray) -> tuple[FrontierPoint, ...]:
    """Some points of the errors of 0, 1, 2 … units."""
    counts = curve_counts(len(errors) - 1)
    return tuple(FrontierPoint(count, float(errors[count]), None) for count in counts)


class Pass(Protocol):
    """Something that changes a graph; a frozen dataclass whose fields are its options."""

    @property
    def name(self) -> str:
        """What the pass is called."""

    def apply(self, graph: Graph, context: Context | None = None) -> PassResult:
        """A changed copy of the graph, or the graph itself if there is nothing to change."""
