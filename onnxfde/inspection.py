"""What `inspect` finds in a model: its layers, what could be merged, and what was refused."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from onnxfde.deadline import Deadline
from onnxfde.graph.affine_maps import NoMatch
from onnxfde.graph.match import Refusal, find_layers
from onnxfde.graph.model import Graph
from onnxfde.graph.other_activations import other_activations
from onnxfde.graph.size import count_parameters
from onnxfde.numbers import ROUNDING_STEPS, ROUNDOFF, Data
from onnxfde.options import DEFAULT_EPS, DEFAULT_RANGE, MergeOptions, Range
from onnxfde.passes.fold_affine import FoldAffine
from onnxfde.passes.layer_study import LayerStudies, LayerStudy, frontier_of, refusing_extremes
from onnxfde.passes.result import Context, Fold, LayerChange, PassResult
from onnxfde.progress import Progress
from onnxfde.running.open_files import Model, open_data, open_model

SHOWN_EPS = (0.0, 0.01, 0.03, 0.1, 0.2, 0.3)
"""The ε for which neurons are counted. Chosen: from lossless to a change of a third; not tuned."""


@dataclass(frozen=True)
class LayerView:
    """A layer as `inspect` shows it."""

    name: str
    activation: str
    inputs: int
    neurons: int
    outputs: int
    parameters: int
    lossless: int
    neurons_at: dict[float, int]
    """Neurons left at each ε by merging blocks and refitting."""
    fewest_at: dict[float, int]
    """The fewest neurons that any layer needs to stay within each ε; 0 if no bound is known."""
    remark: str | None = None

    @property
    def outcome(self) -> str:
        """How many neurons are needed, in a few words."""
        at_default = f"{self.neurons_at[DEFAULT_EPS]} at ε = {DEFAULT_EPS}"
        return f"{self.lossless} neurons without loss, {at_default}"


@dataclass(frozen=True)
class Inspection:
    """The layers of a model, and activations that were refused."""

    layers: tuple[LayerView, ...]
    refused: tuple[Refusal, ...]
    parameters: int
    nothing: str | None = None
    """Why there is no layer, if there is none."""
    other_activations: dict[str, int] = field(default_factory=dict)
    """Activations that are not part of any layer."""
    folds: tuple[Fold, ...] = ()
    """Affine maps side by side that `optimize` would fold into one."""


@np.errstate(all="ignore")
def inspect(
    model: Model,
    *,
    data: Data | None = None,
    input_range: Range = DEFAULT_RANGE,
    progress: Progress | None = None,
) -> Inspection:
    """Find layers, and how many neurons could be merged in them.

    >>> from onnxfde.demo import demo_model
    >>> [layer.neurons for layer in inspect(demo_model(), input_range=(0, 1)).layers]
    [120]
    """
    progress = progress or Progress()
    graph = open_model(model).graph
    inputs, _ = open_data(graph, data, input_range)
    matches, refused = find_layers(graph)
    options = MergeOptions(quotient="refit")
    views = []
    if matches:
        studies = LayerStudies.started(options, Context(inputs, progress), graph, graph, matches)
        for number, match in enumerate(matches, start=1):
            with progress.on_layer(match.title(number, len(matches))) as outcome:
                try:
                    with refusing_extremes():
                        views.append(view_of(studies.study(match, match)))
                    outcome.text = views[-1].outcome
                except NoMatch as reason:
                    refused.append(Refusal(match.name, str(reason)))
                    outcome.text = f"left alone: {reason}"
    nothing = None if views else why_nothing(graph, PassResult(graph, refused=tuple(refused)))
    return Inspection(
        tuple(views),
        tuple(refused),
        count_parameters(graph.model),
        nothing,
        other_activations(graph, matches),
        FoldAffine().apply(graph).folded,
    )


def why_nothing(graph: Graph, result: PassResult) -> str:
    """One sentence on why nothing was merged."""
    if result.layers:
        useful = [eps for layer in result.layers if (eps := noticeable_eps(layer)) is not None]
        hint = f"; something merges at ε = {rounded_up(min(useful))}" if useful else ""
        return f"no neurons merge at this setting{hint}"
    if result.refused:
        return f"none of the {len(result.refused)} activations can be merged (see the reasons)"
    if result.found:
        return "no layer is selected"
    others = ", ".join(f"{count} × {name}" for name, count in other_activations(graph).items())
    has = f"; its activations are {others}" if others else ""
    return (
        f"the model has no activation between two affine maps (Gemm or MatMul with constants){has}"
    )


def noticeable_eps(layer: LayerChange) -> float | None:
    """An ε that would merge something in a layer, unless it is as good as 0 in the stored type."""
    eps = layer.useful_eps
    return None if eps is None or eps < ROUNDING_STEPS * ROUNDOFF[layer.dtype] else eps


def rounded_up(eps: float) -> str:
    """The smallest number with three digits that is not below ε."""
    if eps == 0:
        return "0"
    unit = 10.0 ** (np.floor(np.log10(eps)) - 2)
    return f"{np.ceil(eps / unit) * unit:.3g}"


def view_of(study: LayerStudy) -> LayerView:
    """A layer with the neurons left and the fewest possible at each ε shown."""
    layer, problem = study.problem.layer, study.problem
    free = frontier_of(problem, MergeOptions(), Progress(), Deadline())
    lossless = free.neurons_lossless or layer.neurons
    merged = {eps: study.frontier.within(eps) for eps in SHOWN_EPS}
    return LayerView(
        name=problem.name,
        activation=layer.activation.title,
        inputs=layer.inputs,
        neurons=layer.neurons,
        outputs=layer.outputs,
        parameters=layer.parameters,
        lossless=lossless,
        neurons_at={
            eps: min(r.layer.neurons if r else lossless, lossless) for eps, r in merged.items()
        },
        fewest_at={eps: problem.fewest(eps) for eps in SHOWN_EPS},
        remark=study.remark,
    )
