"""What fewer units of a single layer cost the whole network.

E_i(k) = e_i(k) · r_i        e_i: the relative error of what reads the units of layer i, refitted,
on rows that were held out: all counts from one pass
r_i: how much of that reaches the outputs, from a few runs of the
network in which this layer alone has fewer units
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from onnxfde.errors import RuntimeUnavailable, VerificationError
from onnxfde.graph.axes import Axis
from onnxfde.graph.edit_axes import keep_units, write_reader
from onnxfde.graph.find_axes import find_axes
from onnxfde.graph.model import Graph
from onnxfde.neurons.block_elimination import Moments
from onnxfde.neurons.held_curve import expected_errors, selected_units
from onnxfde.neurons.spending import counts_within
from onnxfde.numbers import FloatArray, Indices
from onnxfde.passes.result import Context
from onnxfde.progress import Progress
from onnxfde.running.moments import curve_moments, in_small_runs, refitted_weights
from onnxfde.running.recording import Recording
from onnxfde.running.run_size import sized_to_compare
from onnxfde.running.samples import Samples
from onnxfde.running.target_changes import OutputMeter

PROBED_ERRORS = (0.3, 0.1, 0.03)
"""Errors of a single layer at which it is seen how much of them reaches the outputs. Chosen: those
between which layers usually end; at smaller ones there is more noise."""
PROBED = 128
"""On so many samples at most, the same ones for all layers. Chosen; not tuned."""
FEWEST_PROBED = 16
"""If fewer are held out from the fit, all samples are looked at."""
LEAST_REACH = 1e-3
"""At least this much of an error is taken to reach the outputs, so that no layer is free."""


@dataclass(frozen=True, eq=False)
class UnitCurve:
    """The errors of 0, 1, 2 … units of an axis."""

    axis: Axis
    local: FloatArray
    """Of what reads the units."""
    network: FloatArray
    """Of the outputs of the network."""


@dataclass(frozen=True, eq=False)
class CurveMeter:
    """Measures the curves of the axes of one network."""

    graph: Graph
    context: Context
    samples: Samples

    def curves(self, axes: Sequence[Axis]) -> list[UnitCurve]:
        """The curves of those axes whose values can be measured."""
        progress, inputs = self.context.progress, self.context.inputs
        progress.say("measuring what each layer contributes")
        samples = in_small_runs(self.samples, self.graph)
        recording = Recording.of(self.graph, inputs, progress, samples)
        found = list[UnitCurve]()
        for axis, moments in curve_moments(recording, axes):
            fitted, chosen = selected_units(moments)
            local = expected_errors(chosen, fitted)
            probes = [
                (local[count], reach)
                for count in probed_counts(local)
                if (reach := self.reach(axis, fitted, chosen.order[:count], local))
            ]
            found.append(UnitCurve(axis, local, local * reaches(local, probes)))
            progress.at(len(found), len(axes))
        return found

    @cached_property
    def meter(self) -> OutputMeter:
        """Runs networks beside this one, on samples that no layer is fitted to if there are any."""
        held = self.samples.parts[1]
        some = (held if held.rows >= FEWEST_PROBED else self.samples).some(PROBED)
        some = sized_to_compare(some, self.graph)
        return OutputMeter(Recording.of(self.graph, self.context.inputs, Progress(), some))

    def reach(
        self, axis: Axis, moments: Sequence[Moments], kept: Indices, local: FloatArray
    ) -> float | None:
        """How much of a layer's error reaches the outputs; None if that cannot be seen."""
        smaller = with_units(self.graph, axis, moments, np.sort(kept))
        try:
            error = self.meter.change(smaller, axis)
        except (RuntimeUnavailable, VerificationError):
            return None
        return None if error is None else max(error / local[len(kept)], LEAST_REACH)


def probed_counts(local: FloatArray) -> list[int]:
    """The counts that come closest to the errors that are looked at."""
    found = {counts_within(local, error) for error in PROBED_ERRORS}
    return sorted(count for count in found if local[count] > 0 and count < len(local) - 1)


def reaches(local: FloatArray, probes: Sequence[tuple[float, float]]) -> FloatArray:
    """How much of each error reaches the outputs, from what was seen at some errors."""
    if not probes:
        return np.ones_like(local)
    errors, seen = (np.array(column) for column in zip(*sorted(probes), strict=True))
    small = np.maximum(local, np.finfo(np.float64).tiny)
    return np.asarray(np.exp(np.interp(np.log(small), np.log(errors), np.log(seen))))


def with_units(graph: Graph, axis: Axis, moments: Sequence[Moments], kept: Indices) -> Graph:
    """A copy of a network in which one axis has only these units, and its readers are refitted."""
    copy = graph.copied()
    own = next(found for found in find_axes(copy, dense=True)[0] if found.name == axis.name)
    fits = [refitted_weights(r, m, kept) for r, m in zip(own.readers, moments, strict=True)]
    left = keep_units(copy, own, kept)
    for reader, (weights, bias) in zip(left.readers, fits, strict=True):
        write_reader(copy, reader, weights, bias)
    return copy
