"""What `inspect` finds in a model: its layers, what could be merged, and what was refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from onnxfde.data_use import DataUse
from onnxfde.deadline import Deadline
from onnxfde.graph.affine_maps import NoMatch
from onnxfde.graph.encrypted_cost import EncryptedCost, encrypted_cost
from onnxfde.graph.find_axes import find_axes
from onnxfde.graph.match import Match, Refusal, find_layers
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import op
from onnxfde.graph.other_activations import other_activations
from onnxfde.graph.protos import TensorProto
from onnxfde.graph.quantized_models import is_quantized
from onnxfde.graph.shapes import Dims, dims
from onnxfde.graph.size import count_parameters
from onnxfde.numbers import ROUNDING_STEPS, ROUNDOFF, Data
from onnxfde.options import DEFAULT_EPS, DEFAULT_RANGE, MergeOptions, Range, UnitKind
from onnxfde.passes.axis_work import AxisWork
from onnxfde.passes.capped_merging import CappedMerging
from onnxfde.passes.channel_counts import count_within
from onnxfde.passes.channel_merging import ChannelMerging
from onnxfde.passes.fold_affine import FoldAffine
from onnxfde.passes.layer_study import LayerStudies, LayerStudy, frontier_of, refusing_extremes
from onnxfde.passes.merge_channels import samples_to_fit
from onnxfde.passes.result import Context, Fold, LayerChange, PassResult
from onnxfde.progress import Progress
from onnxfde.running.open_files import Model, open_data, open_model
from onnxfde.running.seen_shapes import multiply_adds_of_one

SHOWN_EPS = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3)
"""The ε for which neurons are counted. Chosen: from lossless to a change of a third; not tuned."""
NO_MAPS = "no activation between two dense layers (Gemm or MatMul with constants)"
"""What a model without layers has not."""
NO_CHANNELS = "no channels between two convolutions with constant weights"
"""What a model with convolutions has not, if it has no axis."""

NUMPY_NAMES = {"float": "float32", "double": "float64"}
"""What numpy calls types that have another name in ONNX."""
LEAST_HINT = 0.01
"""The smallest ε that is given as advice: at smaller ones hardly anything merges. Chosen; not
tuned."""


@dataclass(frozen=True)
class LayerView:
    """A layer as `inspect` shows it."""

    name: str
    kind: UnitKind
    """Whether the units that are called neurons here are channels of a convolution."""
    activation: str | None
    """None for channels on which no activation acts."""
    inputs: int
    neurons: int
    outputs: int
    parameters: int
    lossless: int
    neurons_at: dict[float, int | None]
    """Neurons left at each ε by merging blocks and refitting; None where that needs data."""
    fewest_at: dict[float, int]
    """The fewest neurons that any layer needs to stay within each ε; 0 if no bound is known."""
    remark: str | None = None

    @property
    def outcome(self) -> str:
        """How many neurons are needed, in a few words."""
        units, left = "channels" if self.kind == "channels" else "neurons", self.neurons_at
        at_default = f", {left[DEFAULT_EPS]} at ε = {DEFAULT_EPS}" if left[DEFAULT_EPS] else ""
        return f"{self.lossless} {units} without loss{at_default}"


@dataclass(frozen=True)
class InputView:
    """An input of a model, as `inspect` shows it."""

    name: str
    type: str
    shape: Dims
    """Lengths; a name or None where any length fits."""

    def __str__(self) -> str:
        """In a few words."""
        return f"{self.name} ({self.type} {'×'.join(str(d or '?') for d in self.shape)})"


@dataclass(frozen=True)
class Inspection:
    """The layers of a model, and activations that were refused."""

    layers: tuple[LayerView, ...]
    """Those with channels of convolutions first, then the dense ones, both in graph order."""
    refused: tuple[Refusal, ...]
    parameters: int
    multiply_adds: int | None = None
    """Of one sample; None if they cannot be counted."""
    nothing: str | None = None
    """Why there is no layer, if there is none."""
    other_activations: dict[str, int] = field(default_factory=dict)
    """Activations that are not part of any layer."""
    folds: tuple[Fold, ...] = ()
    """Affine maps side by side that `optimize` would fold into one."""
    inputs: tuple[InputView, ...] = ()
    """What data must hold."""
    encrypted: EncryptedCost | None = None
    """None if the network is not made of affine maps and polynomials."""


@np.errstate(all="ignore")
def inspect(
    model: Model,
    *,
    data: Data | None = None,
    preprocess: str | Sequence[str] = (),
    inputs: Mapping[str, str] | None = None,
    labels: str | None = None,
    input_range: Range | None = None,
    progress: Progress | None = None,
) -> Inspection:
    """Find layers, and how many neurons could be merged in them.

    >>> from onnxfde.demo import demo_model
    >>> [layer.neurons for layer in inspect(demo_model(), input_range=(0, 1)).layers]
    [120]
    """
    graph = open_model(model).graph
    limits = DEFAULT_RANGE if input_range is None else input_range
    source, _ = open_data(graph, data, limits, DataUse.given(preprocess, inputs, labels))
    source = replace(source, box_given=input_range is not None)
    context = Context(source, progress or Progress())
    matches, refused = find_layers(graph)
    axes, ended = find_axes(graph)
    views = [view_of_axis(work) for work in studied_axes(graph, context)] if axes else []
    studied = list(studied_layers(graph, matches, context))
    views += [found for found in studied if isinstance(found, LayerView)]
    refused = [*ended, *refused, *(found for found in studied if isinstance(found, Refusal))]
    nothing = None if views else why_nothing(graph, PassResult(graph, refused=tuple(refused)))
    inside = [*(v for match in matches for v in match.values), *(v for a in axes for v in a.hidden)]
    return Inspection(
        tuple(views),
        tuple(refused),
        count_parameters(graph.model),
        multiply_adds_of_one(source, graph),
        nothing,
        other_activations(graph, inside),
        FoldAffine().apply(graph).folded,
        inputs_of(graph),
        encrypted_cost(graph),
    )


def studied_layers(
    graph: Graph, matches: list[Match], context: Context
) -> Iterator[LayerView | Refusal]:
    """Dense layers one after the other, or why one is left alone."""
    if not matches:
        return
    options = MergeOptions(quotient="refit")
    studies = LayerStudies.started(options, context, graph, graph, matches)
    for number, match in enumerate(matches, start=1):
        with context.progress.on_layer(match.title(number, len(matches))) as outcome:
            try:
                with refusing_extremes():
                    view = view_of(studies.study(match, match))
                outcome.text = view.outcome
            except NoMatch as reason:
                outcome.text = f"left alone: {reason}"
                yield Refusal(match.name, str(reason))
            else:
                yield view


def studied_axes(graph: Graph, context: Context) -> list[AxisWork]:
    """Axes of channels without those that do nothing, and with their errors if there is data."""
    work = graph.copied()
    samples = samples_to_fit(context.inputs, graph)
    merging = ChannelMerging(CappedMerging(), context, graph, work, samples)
    found = merging.without_loss(find_axes(work)[0])
    if samples is not None:
        merging.measure_curves(found, merging.recorded(work))
    return found


def inputs_of(graph: Graph) -> tuple[InputView, ...]:
    """The inputs that a caller must give, of whatever type."""
    found = []
    for value in graph.inputs:
        kind = value.type.WhichOneof("value") or "unknown"
        if kind == "tensor_type":
            known = {number: name.lower() for name, number in TensorProto.DataType.items()}
            kind = known.get(value.type.tensor_type.elem_type, "unknown")
        found.append(InputView(value.name, NUMPY_NAMES.get(kind, kind), dims(value)))
    return tuple(found)


def why_nothing(graph: Graph, result: PassResult) -> str:
    """One sentence on why nothing was merged."""
    if result.layers:
        useful = [eps for layer in result.layers if (eps := noticeable_eps(layer)) is not None]
        hint = hint_at(min(useful)) if useful else ""
        return f"no {units_of(result.layers)} merge at this setting{hint}"
    if is_quantized(graph.model):
        return "the model is quantized already: optimize the float model, then quantize it (--int8)"
    convolutions = any(op(node) in ("Conv", "ConvTranspose") for node in graph.model.graph.node)
    if result.refused:
        places = "activations and convolutions" if convolutions else "activations"
        return f"none of the {len(result.refused)} {places} can be merged (see the reasons)"
    if result.found:
        return "no layer is selected"
    others = ", ".join(f"{count} × {name}" for name, count in other_activations(graph).items())
    has = f"; its activations are {others}" if others else ""
    lacks = f"{NO_CHANNELS}, and {NO_MAPS}" if convolutions else NO_MAPS
    return f"the model has {lacks}{has}"


def units_of(layers: tuple[LayerChange, ...]) -> str:
    """What the units of layers are called."""
    kinds = {layer.kind for layer in layers}
    return "neurons" if kinds == {"dense"} else "channels" if len(kinds) == 1 else "units"


def hint_at(eps: float) -> str:
    """At which ε something merges; not where that is a single neuron or so at a tiny ε."""
    if eps < LEAST_HINT:
        return "; a larger ε merges some"
    return f"; something merges at ε = {rounded_up(eps)}"


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
        kind="dense",
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


def view_of_axis(work: AxisWork) -> LayerView:
    """An axis with the channels left at each ε shown, as far as its errors are known."""
    known = work.curve is not None
    return LayerView(
        name=work.axis.name,
        kind=work.kind,
        activation=work.activation,
        inputs=work.inputs,
        neurons=work.units,
        outputs=work.outputs,
        parameters=work.parameters,
        lossless=work.lossless,
        neurons_at={
            eps: count_within(work, eps, MergeOptions()) if known or eps == 0 else None
            for eps in SHOWN_EPS
        },
        fewest_at=dict.fromkeys(SHOWN_EPS, 0),
        remark="; ".join(work.remarks) or None,
    )
