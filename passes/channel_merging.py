"""The channels of convolutional networks, axis by axis: without loss first, then by an error.

    facts → remove → curves of all axes → counts → for each axis in graph order:
    moments of what the network is by now → eliminate → refit → [descent]

Counts follow from errors in the original network. What a reader is fitted to is the original's
target, on what it reads in the network as it is by then: so each axis makes up for what those
before it have changed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from onnxfde.deadline import Deadline
from onnxfde.errors import RuntimeUnavailable
from onnxfde.estimates import Estimate
from onnxfde.graph.affine_maps import NoMatch
from onnxfde.graph.axes import Axis
from onnxfde.graph.edit_axes import keep_units, write_reader
from onnxfde.graph.find_axes import read_again
from onnxfde.graph.model import Graph
from onnxfde.neurons.held_curve import expected_errors, selected_units
from onnxfde.passes.axis_work import AxisWork, activations_of
from onnxfde.passes.capped_merging import CappedMerging
from onnxfde.passes.channel_counts import alignment, choose_counts
from onnxfde.passes.channel_descent import descend_axis
from onnxfde.passes.lossless_channels import remove_units
from onnxfde.passes.result import Context, LayerChange
from onnxfde.passes.unit_facts import UnitFacts, unit_facts
from onnxfde.proof.value_bounds import NetworkBounds
from onnxfde.running.moments import curve_moments, in_small_runs, refit_moments, refitted_weights
from onnxfde.running.recording import Recording
from onnxfde.running.samples import Samples
from onnxfde.running.target_changes import TargetMeter
from onnxfde.threads import few_threads

TIME_IS_UP = "the time limit ended the search for better weights"


@dataclass(eq=False)
class ChannelMerging:
    """Merges channels of `work`, a copy of the original, in place."""

    options: CappedMerging
    context: Context
    original: Graph
    work: Graph
    samples: Samples | None = None
    """What axes are fitted to; None: they are merged without loss only."""

    def without_loss(self, axes: Sequence[Axis]) -> list[AxisWork]:
        """Remove the units that do nothing, for all inputs or for those in the range given."""
        inputs = self.context.inputs
        bounds = None
        if inputs.all_within_box:
            bounds = NetworkBounds(self.original, inputs.box(self.original))
        names = activations_of(self.work, axes)
        works = [AxisWork.started(self.work, *found) for found in zip(axes, names, strict=True)]
        for found in works:
            axis = read_again(self.work, found.axis)
            facts, found.range_only = self.facts(axis, bounds)
            found.axis = remove_units(self.work, axis, facts, self.options.align or 1)
            found.lossless = found.axis.units
        return works

    def facts(self, axis: Axis, bounds: NetworkBounds | None) -> tuple[UnitFacts, bool]:
        """What lets units go, and whether it holds in the range only that the user gave.

        What holds for all inputs is preferred where it leaves as few.
        """
        anywhere, align = unit_facts(self.work, axis, None), self.options.align or 1
        if bounds is None:
            return anywhere, False
        in_range = unit_facts(self.work, axis, bounds)
        left = [len(facts.kept_in_multiples(align)) for facts in (in_range, anywhere)]
        return (in_range, True) if left[0] < left[1] else (anywhere, False)

    def by_an_error(self, works: list[AxisWork], eps: dict[str, float]) -> None:
        """Leave so few units of each axis as ε or a count allows."""
        progress, original = self.context.progress, self.recorded(self.work.copied())
        if not self.options.asks_for_count:
            self.measure_curves(works, original)
        choose_counts(works, eps, self.options)
        current, meter = original.for_copy(self.work), self.meter(original)
        chooser = self.chooser(original) or meter
        chosen = [w for w in works if w.count is not None and w.count < w.axis.units]
        for number, work in enumerate(chosen, start=1):
            title = f"layer {number} of {len(chosen)} '{work.axis.name}'"
            deadline = self.context.deadline.for_part(share_of_time(chosen[number - 1 :]))
            with progress.on_layer(title) as outcome, few_threads(work.parameters):
                copy = self.work.copied() if self.options.counts else None
                before = chooser.current.for_copy(copy) if copy is not None else None
                self.reduce(work, original, current, deadline)
                self.measure(work, meter)
                if before is not None:
                    self.measure_own(work, TargetMeter(before, chooser.current))
                outcome.text = f"{work.units} → {work.axis.units} channels"
        self.go_on(chosen, original, current, meter)

    def go_on(
        self, done: list[AxisWork], original: Recording, current: Recording, meter: TargetMeter
    ) -> None:
        """Use what is left of the time for layers whose search it ended.

        What a reader makes must be all that it made in the original: if it makes the units of
        another axis, some of them are gone by now.
        """
        makers = {work.axis.producer.node.output[0] for work in done}
        whole = [
            work for work in done if not any(r.node.output[0] in makers for r in work.axis.readers)
        ]
        cut, moved = [work for work in whole if work.cut], False
        for number, work in enumerate(cut):
            deadline = self.context.deadline.for_part(share_of_time(cut[number:]))
            if deadline.passed:
                break
            title = f"layer '{work.axis.name}' again"
            with self.context.progress.on_layer(title) as outcome, few_threads(work.parameters):
                work.cut, moved = False, True
                work.remarks.remove(TIME_IS_UP)
                current.forget(work.axis.producer.node.output[0])
                self.descend(work, original, current, deadline)
                outcome.text = f"{work.axis.units} channels"
        for work in whole if moved else []:
            self.measure(work, meter)

    def recorded(self, reference: Graph) -> Recording:
        """The values of a network on what axes are fitted to, without any so far."""
        assert self.samples is not None
        samples = in_small_runs(self.samples, reference)
        return Recording.of(reference, self.context.inputs, self.context.progress, samples)

    def measure_curves(self, works: list[AxisWork], original: Recording) -> None:
        """The errors of all counts, in the network as it is now."""
        self.context.progress.say("measuring what each channel contributes")
        for work in works:
            work.axis = read_again(self.work, work.axis)
        by_name = {work.axis.name: work for work in works}
        try:
            axes = [w.axis for w in works]
            for axis, moments in curve_moments(original, axes):
                fitted, found = selected_units(moments)
                by_name[axis.name].curve = expected_errors(found, fitted)
        except (RuntimeUnavailable, np.linalg.LinAlgError) as reason:
            for work in works:
                if work.curve is None:
                    work.remarks.append(f"left alone, because its values are not known: {reason}")

    def reduce(
        self, work: AxisWork, original: Recording, current: Recording, deadline: Deadline
    ) -> None:
        """Leave as many units of one axis as were chosen, fitted to the original's target."""
        axis = read_again(self.work, work.axis)
        assert work.count is not None
        self.context.progress.say("looking for fewer channels")
        try:
            moments = refit_moments(original, current, axis, seed=self.options.seed)
            fitted, found = selected_units(moments, work.count)
        except (RuntimeUnavailable, np.linalg.LinAlgError) as reason:
            work.remarks.append(f"left alone, because it cannot be fitted: {reason}")
            return
        if not current.samples.spared:
            fitted = [reader.with_held for reader in fitted]
        kept = np.sort(found.order[: work.count])
        fits = [
            refitted_weights(reader, of_reader, kept)
            for reader, of_reader in zip(axis.readers, fitted, strict=True)
        ]
        work.axis = keep_units(self.work, axis, kept)
        for reader, (weights, bias) in zip(work.axis.readers, fits, strict=True):
            write_reader(self.work, reader, weights, bias)
        work.axis = read_again(self.work, work.axis)
        current.forget(axis.producer.node.output[0])
        if self.options.quotient_used == "minimal":
            self.descend(work, original, current, deadline)

    def descend(
        self, work: AxisWork, original: Recording, current: Recording, deadline: Deadline
    ) -> None:
        """Move the weights around an axis downhill, as long as there is time."""
        self.context.progress.say("moving weights downhill")
        try:
            if not deadline.passed:
                seed = self.options.seed
                work.descended |= descend_axis(original, current, work.axis, seed, deadline)
                current.forget(work.axis.producer.node.output[0])
            if deadline.passed:
                work.cut = True
                work.remarks.append(TIME_IS_UP)
        except (NoMatch, RuntimeUnavailable) as reason:
            work.remarks.append(f"refitted only: {reason}")

    def meter(self, original: Recording) -> TargetMeter:
        """Measures changes on data that nothing was fitted to, if there is any."""
        inputs, reference = self.context.inputs, original.graph
        samples = inputs.verdict or self.samples
        if inputs.images:
            samples = inputs.verification_samples(reference)
        assert samples is not None
        return self.meter_on(samples, original)

    def meter_on(self, samples: Samples, original: Recording) -> TargetMeter:
        """Measures changes on some samples."""
        small = in_small_runs(samples, original.graph)
        kept = Recording.of(original.graph, self.context.inputs, self.context.progress, small)
        return TargetMeter(kept, kept.for_copy(self.work))

    def chooser(self, original: Recording) -> TargetMeter | None:
        """The same on the samples that a target chooses by, where it needs that."""
        if self.samples is None or not (self.samples.spared and self.options.counts):
            return None
        return self.meter_on(self.samples.parts[1], original)

    def measure(self, work: AxisWork, meter: TargetMeter) -> None:
        """The change of what counts behind an axis that was just reduced."""
        try:
            work.measured = meter.change(work.axis, work.descended)
        except RuntimeUnavailable as reason:
            work.measured = Estimate(work.estimate, 0)
            work.remarks.append(f"its error is an estimate, because it was not measured: {reason}")

    def measure_own(self, work: AxisWork, meter: TargetMeter) -> None:
        """The change that its own units make, where it can be measured."""
        with suppress(RuntimeUnavailable):
            work.own = meter.change(work.axis, work.descended)

    def change(self, work: AxisWork, eps: float | None) -> LayerChange:
        """What the report says of an axis."""
        axis = read_again(self.work, work.axis)
        change = work.change(self.work, axis, eps, alignment(work.axis, work.units, self.options))
        return replace(change, frontier=work.frontier()) if self.context.frontiers else change


def share_of_time(left: Sequence[AxisWork]) -> float:
    """What the first of the axes that are left is expected to take of the time for all of them.

    On ResNet20 that grows as the root of the parameters: layers with many have small maps.
    """
    times = [math.sqrt(work.parameters) for work in left]
    return times[0] / max(sum(times), 1.0)
