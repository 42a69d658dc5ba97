"""merge-channels: Conv → inner nodes → Conv | Gemm  ⇒  the same with fewer channels.

Channels that are dead, constant or made of others go without loss. With ε, a count or a limit on
the whole model, and with inputs to fit to, more of them go (`channel_merging`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from onnxfde.errors import DataError
from onnxfde.graph.axes import Axis
from onnxfde.graph.find_axes import find_axes
from onnxfde.graph.match import Refusal, find_layers
from onnxfde.graph.model import Graph
from onnxfde.options import DEFAULT_EPS, MergeOptions
from onnxfde.passes.axis_work import AxisWork
from onnxfde.passes.capped_merging import CappedMerging
from onnxfde.passes.channel_merging import ChannelMerging
from onnxfde.passes.result import Context, PassResult
from onnxfde.running.input_source import InputSource
from onnxfde.running.samples import Samples

MOST_IMAGES = 2048
"""Samples that channels are fitted to at most; of more, some are taken. Chosen; not tuned."""
CHANNELS_NEED_DATA = (
    "merged without loss only, because nothing is known of its inputs: give --data to merge more"
)
CANNOT_BE_MADE_UP = (
    "merged without loss only, because nothing is known of its inputs, nor can they be made up "
    "({}): give --data to merge more"
)
CHANNELS_IN_RANGE = (
    "channels were removed because they are constant for all inputs in --input-range"
)
MADE_UP = (
    "fitted to made-up images (dead leaves), not to real ones, so that its error on these is not "
    "known: give --data"
)
TOO_FEW_CHANNELS = (
    "less than three quarters of the channels are left, which made-up images do not bear"
)
ENOUGH_LEFT = 0.75
"""The share of channels that made-up images are good for."""
BUDGET_ONLY = "channels are merged with --semantics budget only; {} is about dense layers"


@dataclass(frozen=True)
class MergeChannels(CappedMerging):
    """Merge the channels of convolutions."""

    name: ClassVar[str] = "merge-channels"

    def apply(self, graph: Graph, context: Context | None = None) -> PassResult:
        """Merge the channels of every selected axis."""
        context = context or Context()
        progress = context.progress
        with progress.timed("match"):
            axes, refused = find_axes(graph)
        names = [axis.name for axis in axes]
        wanted = self.selected(names, lambda: [match.name for match in find_layers(graph)[0]])
        if self.semantics != "budget":
            refused += [Refusal(name, BUDGET_ONLY.format(self.semantics)) for name in wanted]
        if not wanted or self.semantics != "budget":
            return PassResult(graph, refused=tuple(refused))
        context, unknown = self.with_inputs(graph, context)
        work, samples = graph.copied(), samples_to_fit(context.inputs, graph)
        chosen = [axis for axis in find_axes(work)[0] if axis.name in wanted]
        merging = ChannelMerging(self, context, graph, work, samples)
        with progress.timed("partition"):
            works = merging.without_loss(chosen)
            if samples is not None and self.asks_for_more(works, merging):
                eps = {axis.name: self.eps_of(axis, merging) for axis in chosen}
                merging.by_an_error(works, eps)
        for found in works:
            found.remarks += self.remarks(found, merging, unknown)
        counted = self.asks_for_count
        changes = tuple(
            merging.change(found, None if counted else self.eps_of(found.axis, merging))
            for found in works
        )
        changed = any(change.changed for change in changes)
        return PassResult(work if changed else graph, changes, tuple(refused))

    def with_inputs(self, graph: Graph, context: Context) -> tuple[Context, str]:
        """The context with made-up images if they are needed, or why nothing is known of inputs."""
        try:
            inputs = inputs_to_fit(self, graph, context.inputs)
        except DataError as reason:
            return context, CANNOT_BE_MADE_UP.format(reason)
        return replace(context, inputs=inputs), CHANNELS_NEED_DATA

    def asks_for_more(self, works: list[AxisWork], merging: ChannelMerging) -> bool:
        """Whether more is asked for than what costs nothing."""
        return self.asks_for_count or any(self.eps_of(w.axis, merging) > 0 for w in works)

    def eps_of(self, axis: Axis, merging: ChannelMerging) -> float:
        """The ε of an axis: 0 if none is given and nothing is known of its inputs."""
        given = self.eps_given(axis.name)
        if merging.samples is None or (merging.context.inputs.images and given is None):
            return 0.0
        return min(DEFAULT_EPS if given is None else given, self.most_eps)

    def remarks(self, found: AxisWork, merging: ChannelMerging, unknown: str) -> list[str]:
        """What is not known of an axis."""
        given = self.eps_given(found.axis.name)
        said = [CHANNELS_IN_RANGE] if found.range_only else []
        if merging.samples is None:
            return [*said, unknown] if self.asks_for_count or given != 0 else said
        if merging.context.inputs.images and found.axis.units < found.lossless:
            said.append(MADE_UP)
            if found.axis.units < ENOUGH_LEFT * found.units:
                said.append(TOO_FEW_CHANNELS)
        return said


def inputs_to_fit(options: MergeOptions, graph: Graph, inputs: InputSource) -> InputSource:
    """Where inputs come from: made-up images if there is no data and the user asks to approximate.

    DataError if they are needed and the model's inputs are no images.
    """
    if inputs.data is not None or inputs.images or not options.asks_to_approximate:
        return inputs
    return inputs.with_images(graph)


def samples_to_fit(inputs: InputSource, graph: Graph) -> Samples | None:
    """What axes are fitted to, if anything is known of inputs."""
    if inputs.data is not None:
        return inputs.data.some(MOST_IMAGES)
    return inputs.measuring_samples(graph) if inputs.images else None
