"""A network, its curves, and what becomes of it with any number of units in its layers.

    lossless  →  curves of all axes (`unit_curves`)  →  counts  →  merged with these counts

Counts are chosen by Σ E_i(k_i)², the squared errors of the outputs, each as if its layer alone had
fewer units; how far that is from what the merged network does is seen when it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from onnxfde.errors import DataError, RuntimeUnavailable
from onnxfde.graph.axes import Axis
from onnxfde.graph.edit_axes import keep_units
from onnxfde.graph.find_axes import find_axes, is_plain_dense
from onnxfde.graph.match import find_layers
from onnxfde.graph.model import Graph
from onnxfde.graph.shapes import Dims
from onnxfde.neurons.spending import Spending
from onnxfde.numbers import Indices
from onnxfde.passes.channel_counts import alignment
from onnxfde.passes.fold_affine import FoldAffine
from onnxfde.passes.goal_costs import cost_of_counts
from onnxfde.passes.merge_channels import MergeChannels, inputs_to_fit, samples_to_fit
from onnxfde.passes.merge_neurons import MergeNeurons
from onnxfde.passes.result import Context, PassResult, frontier_of_errors
from onnxfde.passes.unit_curves import CurveMeter, UnitCurve
from onnxfde.running.seen_shapes import shapes_of_one

NO_AXES = "no layer can be made smaller with loss (onnxfde inspect says why)"


def merged_by(merge: MergeNeurons, original: Graph, context: Context) -> PassResult:
    """Merge channels and neurons, and fold what then stands side by side.

    With a memory, the same numbers of channels are merged once.
    """
    channels = {axis.name for axis in find_axes(original)[0]}
    own = tuple(count for count in merge.counts if count[0] in channels)
    first = MergeChannels.of(replace(merge, counts=own or merge.counts, allowed=()))
    result = context.remembered((original, first), lambda: first.apply(original, context))
    result = result.then(merge.apply(result.graph, replace(context, reference=original)))
    if merge.semantics == "budget" and not (merge.layers or merge.skip):
        result = result.then(FoldAffine().apply(result.graph, context))
    return result


@dataclass(frozen=True, eq=False)
class GoalSearch:
    """Looks for the numbers of units that meet a goal of the whole network."""

    merge: MergeNeurons
    """How neurons are merged, without the goal."""
    original: Graph
    context: Context
    asked: str = ""
    """The option by which the goal was given."""

    @cached_property
    def lossless(self) -> PassResult:
        """The network without what it does not need."""
        return merged_by(replace(self.merge, eps=0.0), self.original, self.quiet)

    @property
    def quiet(self) -> Context:
        """The context without notes on single layers."""
        return replace(self.context, progress=self.context.progress.without_notes())

    @cached_property
    def axes(self) -> list[Axis]:
        """What may have fewer units: channels, and dense layers that can be merged."""
        graph = self.lossless.graph
        dense = {match.name for match in find_layers(graph)[0]}
        found = find_axes(graph, dense=True)[0]
        known = [axis for axis in found if not is_plain_dense(axis) or axis.name in dense]
        wanted = set(self.merge.selected([axis.name for axis in known]))
        return [axis for axis in known if axis.name in wanted and axis.units > 1]

    @cached_property
    def fitting(self) -> Context:
        """The context with made-up images where channels are to be fitted and there is no data."""
        channels = any(not is_plain_dense(axis) for axis in self.axes)
        if not channels:
            return self.context
        try:
            asked = replace(self.merge, keep=1.0)
            inputs = inputs_to_fit(asked, self.original, self.context.inputs)
        except DataError as reason:
            raise DataError(f"{self.asked} needs --data: {reason}") from None
        return replace(self.context, inputs=inputs)

    @cached_property
    def curves(self) -> list[UnitCurve]:
        """The errors of all counts of all axes."""
        graph, inputs = self.lossless.graph, self.fitting.inputs
        samples = samples_to_fit(inputs, graph) or inputs.measuring_samples(graph)
        with self.context.progress.timed("partition"):
            try:
                return CurveMeter(graph, self.fitting, samples).curves(self.axes)
            except (RuntimeUnavailable, np.linalg.LinAlgError) as reason:
                raise DataError(
                    f"{self.asked}: values of the network are not known: {reason}"
                ) from None

    def shapes_of(self, graph: Graph) -> Mapping[str, Dims]:
        """The shapes of a network's values for one sample, as far as they are known."""
        return shapes_of_one(self.context.inputs, graph)

    def spending(self, kind: str) -> Spending:
        """Errors of counts, and what they cost."""
        axes = [curve.axis for curve in self.curves]
        graph = self.lossless.graph
        cost = cost_of_counts(kind, graph, axes, self.shapes_of(graph))
        steps = [alignment(axis, axis.units, self.merge) for axis in axes]
        networks = [curve.network for curve in self.curves]
        return Spending.of(networks, lambda counts: cost(self.named(counts)), steps)

    def named(self, counts: Indices) -> dict[str, int]:
        """Counts by the names of their axes."""
        names = (curve.axis.name for curve in self.curves)
        return {name: int(count) for name, count in zip(names, counts, strict=True)}

    def merged(self, counts: Indices, share: float = 1.0, by_error: bool = False) -> PassResult:
        """The network with so many units, in this share of the time that is left.

        `by_error`: a dense layer has as few as a search finds within the error that its curve has
        with so many.
        """
        decided = tuple(sorted(self.named(counts).items()))
        if all(dict(decided)[axis.name] >= axis.units for axis in self.axes):
            return self.lossless
        deadline = self.context.deadline.for_part(share)
        context = replace(self.fitting, deadline=deadline)
        allowed = self.allowed(counts) if by_error else ()
        merge = replace(self.merge, counts=decided, allowed=allowed)
        return self.with_frontiers(merged_by(merge, self.original, context))

    def allowed(self, counts: Indices) -> tuple[tuple[str, float], ...]:
        """The errors of dense layers that have so many units by their curves."""
        pairs = zip(self.curves, counts, strict=True)
        return tuple((c.axis.name, float(c.local[k])) for c, k in pairs if is_plain_dense(c.axis))

    def counts_of(self, found: PassResult) -> Indices:
        """How many units a network has of each axis that may have fewer."""
        left = {layer.name: layer.neurons_after for layer in found.layers}
        axes = [curve.axis for curve in self.curves]
        return np.array([min(left.get(a.name, a.units), a.units) for a in axes], dtype=np.intp)

    def own_errors(self, found: PassResult) -> dict[str, float]:
        """The errors of the layers that have fewer units, without what others before them add."""
        known = ((layer.name, layer.own_error) for layer in found.layers if layer.changed)
        return {name: error for name, error in known if error is not None}

    def with_frontiers(self, found: PassResult) -> PassResult:
        """The same with the curves that counts were chosen by, where layers tell no others."""
        if not self.context.frontiers:
            return found
        known = {curve.axis.name: frontier_of_errors(curve.local) for curve in self.curves}
        layers = (
            replace(layer, frontier=layer.frontier or known.get(layer.name, ()))
            for layer in found.layers
        )
        return replace(found, layers=tuple(layers))

    def skeleton(self, counts: Indices) -> Graph:
        """The network with so many units, any of them: it computes nonsense, but as fast."""
        wanted, copy = self.named(counts), self.lossless.graph.copied()
        for name, count in wanted.items():
            axis = next(a for a in find_axes(copy, dense=True)[0] if a.name == name)
            if count < axis.units:
                keep_units(copy, axis, np.arange(count))
        return copy
