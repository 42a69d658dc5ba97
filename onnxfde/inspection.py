"""Looking at a model without changing it: its layers, what could be merged, and near misses."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from onnxfde.graph.match import Match, Refusal, find_layers
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import op
from onnxfde.graph.size import count_parameters
from onnxfde.neurons.block_search import Budget
from onnxfde.neurons.free_search import Minimal
from onnxfde.neurons.lower_bound import lower_bounds
from onnxfde.options import DEFAULT_RANGE
from onnxfde.passes.merge_neurons import budget_search
from onnxfde.passes.result import PassResult
from onnxfde.progress import Work
from onnxfde.running.layer_inputs import LayerInputs
from onnxfde.running.opening import Data, Model, open_data, open_model
from onnxfde.running.samples import Range

LADDER = (0.0, 0.01, 0.03, 0.1, 0.2, 0.3)
ACTIVATIONS = (
    "Relu", "LeakyRelu", "PRelu", "Sigmoid", "Tanh", "Gelu", "Erf", "Softplus", "Elu", "HardSwish",
)  # fmt: skip


@dataclass(frozen=True)
class LayerView:
    """A layer as `inspect` shows it."""

    name: str
    inputs: int
    neurons: int
    outputs: int
    parameters: int
    lossless: int
    neurons_at: dict[float, int]
    """Neurons left at each ε by merging and refitting."""
    fewest_at: dict[float, int]
    """What no layer can go below at that ε; 0 where nothing is known."""
    remark: str | None = None


@dataclass(frozen=True)
class Inspection:
    """The layers of a model and its near misses."""

    layers: tuple[LayerView, ...]
    refused: tuple[Refusal, ...]
    parameters: int
    nothing: str | None = None
    """Why there is no layer, if there is none."""
    other_activations: dict[str, int] = field(default_factory=dict)
    """Activations that are not supported yet."""


def inspect(
    model: Model,
    *,
    data: Data | None = None,
    input_range: Range = DEFAULT_RANGE,
    work: Work | None = None,
) -> Inspection:
    """Find layers and what could be merged in them.

    >>> from onnxfde.demo import demo_model
    >>> [layer.neurons for layer in inspect(demo_model(), input_range=(0, 1)).layers]
    [120]
    """
    work = work or Work()
    source = open_model(model)
    probe, _ = open_data(source.graph, data, input_range)
    matches, refused = find_layers(source.graph)
    views = []
    for match in matches:
        work.say(match.name)
        inputs = probe.layer_inputs(source.graph, match, work.tick)
        search = budget_search(match, inputs)
        views.append(viewed(match, search, inputs))
    nothing = (
        None
        if matches
        else why_nothing(source.graph, PassResult(source.graph.model, (), tuple(refused)))
    )
    return Inspection(
        tuple(views),
        tuple(refused),
        count_parameters(source.graph.model),
        nothing,
        other_activations(source.graph),
    )


def why_nothing(graph: Graph, result: PassResult) -> str:
    """One sentence on why nothing was merged."""
    if result.layers:
        useful = [layer.useful_eps for layer in result.layers if layer.useful_eps is not None]
        hint = f"; something merges at ε = {rounded_up(min(useful))}" if useful else ""
        return f"no neurons merge at this setting{hint}"
    if result.refused:
        return (
            f"none of the {len(result.refused)} square activations can be merged (see the reasons)"
        )
    if find_layers(graph)[0]:
        return "no layer is selected"
    others = ", ".join(f"{count} × {name}" for name, count in other_activations(graph).items())
    has = f"; its activations are {others}" if others else ""
    return f"the model has no square activation (Mul(x, x) or Pow(x, 2)) between affine maps{has}"


def other_activations(graph: Graph) -> dict[str, int]:
    """Activations in the main graph that are not squares."""
    return dict(Counter(op(n) for n in graph.model.graph.node if op(n) in ACTIVATIONS))


def rounded_up(eps: float) -> str:
    """A number that is certainly not below ε, with three digits."""
    if eps == 0:
        return "0"
    unit = 10.0 ** (np.floor(np.log10(eps)) - 2)
    return f"{np.ceil(eps / unit) * unit:.3g}"


def viewed(match: Match, search: Budget, inputs: LayerInputs) -> LayerView:
    """A layer with what is left of it at each step of the ladder, and what must be."""
    layer = match.layer
    found = {eps: search.within(eps) for eps in LADDER}
    exact = Minimal(search).lossless
    lossless = exact.layer.neurons if exact else layer.neurons
    left = {eps: min(r.layer.neurons if r else lossless, lossless) for eps, r in found.items()}
    bounds = lower_bounds(search.rows, search.layer.outgoing)
    return LayerView(
        match.name, layer.inputs, layer.neurons, layer.outputs, layer.parameters, lossless, left,
        {eps: int(np.sum(bounds > eps)) for eps in LADDER}, inputs.remark,
    )  # fmt: skip
