"""What a pass needs to know about a layer: its problem, and the frontier of smaller layers.

    layer in the graph → its inputs (`layer_inputs`) → `Problem` → `Frontier`

If layers before it were merged, a layer sees other inputs. Each combination of what those layers
became is studied once and remembered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from onnxfde.deadline import Deadline
from onnxfde.estimates import Estimate, relative_error
from onnxfde.graph.affine_maps import NoMatch
from onnxfde.graph.match import Match
from onnxfde.graph.model import Graph
from onnxfde.lumping.threshold_frontier import ThresholdFrontier, threshold_fault
from onnxfde.neurons.block_search import BlockSearch
from onnxfde.neurons.elimination_search import EliminationSearch
from onnxfde.neurons.free_search import FreeSearch
from onnxfde.neurons.frontier import Frontier, Reduced
from onnxfde.neurons.held_out import Evidence
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.layer_limits import size_fault
from onnxfde.neurons.polynomial_activations import SQUARE
from onnxfde.neurons.problem import Problem
from onnxfde.neurons.structural_merge import structural_merge
from onnxfde.neurons.value_range import storage_fault
from onnxfde.numbers import FloatArray
from onnxfde.options import MergeOptions
from onnxfde.passes.result import Context, FrontierPoint, curve_counts
from onnxfde.passes.stored_form import stored_form
from onnxfde.progress import Progress
from onnxfde.proof.value_bounds import feature_bounds
from onnxfde.running.input_source import DATA_ROWS, InputSource
from onnxfde.running.layer_inputs import (
    LayerInputs,
    layer_inputs,
    observed_outputs,
    record_layers,
)
from onnxfde.running.recording import Recording
from onnxfde.running.samples import Samples

CURVE_WORK = 1e10
"""Neurons² × (inputs + outputs) up to which the errors of other counts are told of a layer: a few
seconds. Chosen; not tuned."""
MEASURED_PRODUCTS = 2**30
"""Products of inputs and weights for which a layer's change is measured on all samples, 0.1 s on
one core; larger layers are measured on some. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class LayerStudy:
    """One layer: the problem of shrinking it, and the frontier of solutions."""

    problem: Problem
    frontier: Frontier
    remark: str | None = None
    """A warning about what is known of its inputs."""
    verdict: Evidence | None = None
    """Inputs and outputs of the layer that it is neither fitted to nor chosen by."""
    choosing: FloatArray | None = None
    """Inputs of the layer by which a target chooses."""
    wider_samples: FloatArray | None = None
    """Inputs of the layer under another assumption than those of the problem."""
    assumed: bool = False
    """Whether there is no data, so that its inputs are assumed."""

    @property
    def lossless_unless_asked(self) -> bool:
        """Whether it is approximated only if the user asks for it.

        On assumed inputs polynomials do what they do on real ones of the same size; others may not.
        """
        return self.assumed and self.problem.layer.activation.power is None

    def holds_in_range_only(self, found: Reduced | None) -> bool:
        """Whether neurons went because of the range that the user gave."""
        problem = self.problem
        if found is None or problem.box is None or found is not self.frontier.lossless:
            return False
        anywhere = structural_merge(replace(problem, box=None))
        return anywhere is None or anywhere.layer.neurons > found.layer.neurons

    @property
    def cut(self) -> bool:
        """Whether the time limit ended the last search."""
        return isinstance(self.frontier, FreeSearch) and self.frontier.cut

    @property
    def remarks(self) -> str | None:
        """The warning, and why the last search ended early, if it did."""
        ended = self.frontier.remark if isinstance(self.frontier, FreeSearch) else None
        return "; ".join(filter(None, (self.remark, ended))) or None

    def own_error(self, after: Layer) -> Estimate | None:
        """The change that a smaller layer itself makes on the rows that a target chooses by.

        Where none does, on those kept for the verdict; None if there are neither.
        """
        rows = self.choosing
        if rows is None and self.verdict is not None:
            rows = self.verdict.inputs
        return None if rows is None else relative_error(self.problem.layer(rows), after(rows))

    def curve(self) -> tuple[FrontierPoint, ...]:
        """The errors of some counts by the quick method that searches start from."""
        frontier, problem = self.frontier, self.problem
        quick = frontier.blocks if isinstance(frontier, FreeSearch) else frontier
        live = problem.live
        large = live.neurons**2 * (live.inputs + live.outputs) > CURVE_WORK
        if large or isinstance(quick, ThresholdFrontier) or not live.neurons:
            return ()
        found = {}
        for count in curve_counts(live.neurons):
            reduced = quick.at_most(count)
            if reduced is not None and reduced.layer.neurons:
                found[reduced.layer.neurons] = reduced.error
        return tuple(
            FrontierPoint(n, error, problem.lower_bound(n)) for n, error in sorted(found.items())
        )

    def measured_error(self, after: Layer, merged: bool, range_only: bool = False) -> Estimate:
        """The change on rows kept for the verdict, else on rows held out, else on the samples.

        Under two assumptions about the inputs the larger change counts, unless the layer is meant
        for the given range only.
        """
        if not merged:
            return Estimate(0.0, 0)
        if self.verdict is not None:
            return self.verdict.estimate(after)
        before, evidence = self.problem.layer, self.problem.evidence
        if evidence is None:
            work = len(self.problem.samples) * before.incoming.size
            rows = self.problem.samples[:: 1 + work // MEASURED_PRODUCTS]
            own = relative_error(before(rows), after(rows))
        else:
            own = evidence.held_out.estimate(after)
        if range_only or self.wider_samples is None:
            return own
        wider = relative_error(before(self.wider_samples), after(self.wider_samples))
        return max(own, wider, key=lambda error: error.value)


@dataclass(frozen=True, eq=False)
class RecordedPair:
    """The same samples in the original network and in the network as it is now."""

    original: Recording
    current: Recording

    @classmethod
    def of(cls, original: Recording, graph: Graph, work: Graph) -> RecordedPair:
        """`work` is a copy of `graph`, of which other passes may have made something else."""
        current = original.for_copy(work)
        if graph is not original.graph:
            current.drop(list(current.recorded))
        return cls(original, current)

    def inputs(self, now: Match) -> LayerInputs:
        """What a layer reads in the network as it is now."""
        return layer_inputs(self.current, now)

    def outputs(self, inputs: LayerInputs, now: Match, found: Match) -> Evidence | None:
        """Those inputs with what the original network computes there."""
        return observed_outputs(inputs, now, self.current, found, self.original)


@dataclass(eq=False)
class LayerStudies:
    """Studies of the layers of one network while they are merged one after the other."""

    options: MergeOptions
    context: Context
    fitting: RecordedPair
    """On the samples that layers are fitted to and chosen by."""
    verdict: RecordedPair | None
    """On the samples that are kept for the verdict."""
    wider: RecordedPair | None
    """On inputs under another assumption, if there is no data."""
    deadline: Deadline = field(default_factory=Deadline)
    """When the search at the present layer must end."""
    start: Graph | None = None
    """The network before any of its layers was merged."""
    replaced: tuple[Reduced, ...] = ()
    """What the layers merged so far became."""
    passed: tuple[str, ...] = ()
    """What the layer before the present one read."""

    @classmethod
    def started(
        cls, options: MergeOptions, context: Context, graph: Graph, work: Graph, layers: list[Match]
    ) -> LayerStudies:
        """Record the inputs of all layers; `work` is the copy of the graph that will be edited."""
        inputs = context.inputs
        graph, current = context.reference or graph, graph
        results = any(needs_evidence(options, match.layer, inputs) for match in layers)
        context.progress.say("recording the inputs of layers")

        def pair(name: str, source: InputSource, samples: Samples | None = None) -> RecordedPair:
            def record() -> Recording:
                recording = Recording.of(graph, source, context.progress, samples)
                record_layers(recording, layers, with_results=results or samples is not None)
                return recording

            return RecordedPair.of(context.remembered((graph, name), record), current, work)

        kept, wider = inputs.verdict, inputs.wider
        return cls(
            options,
            context,
            pair("fitting", inputs),
            None if kept is None else pair("verdict", inputs, kept.some(DATA_ROWS)),
            None if wider is None else pair("wider", wider),
            start=current,
        )

    def study(self, now: Match, found: Match) -> LayerStudy:
        """The study of a layer as it is `now`; `found` is the same layer in the original.

        NoMatch if it is too large, or its values are beyond what its type or float64 can hold.
        """
        method = self.options.method
        key = (self.fitting.original, self.start, found.name, self.replaced, method)
        return self.context.remembered(key, lambda: self._new_study(now, found))

    def note_replaced(self, match: Match, became: Reduced) -> None:
        """Take note that a layer was replaced, which changes the values after it."""
        self.replaced = (*self.replaced, became)
        for pair in (self.fitting, self.verdict, self.wider):
            if pair is not None:
                pair.current.forget(match.incoming.node.output[0])

    def leave(self, done: Match, left: Sequence[Match]) -> None:
        """Give back the memory of a layer's values, unless a layer that is left needs them.

        What it reads in the network as it is now stays until the next layer is left: the part
        before that one starts there. With a memory, layers may be studied again.
        """
        needed = {name for match in left for name in (match.source, match.result)}
        for pair in (self.fitting, self.verdict, self.wider):
            if pair is not None:
                pair.current.drop({done.result, *self.passed} - needed)
                if self.context.memory is None:
                    pair.original.drop({done.source, done.result} - needed)
        self.passed = (done.source,)

    def _new_study(self, now: Match, found: Match) -> LayerStudy:
        if too_large := size_fault(now.layer):
            raise NoMatch(too_large)
        progress = self.context.progress
        progress.say("reading its inputs")
        inputs, recorded = self.fitting.inputs(now), self.fitting
        samples = inputs.samples
        wider = self.wider.inputs(now) if self.wider else None
        wider = wider if wider and wider.remark is None else None
        wider_samples = wider.samples if wider else None
        if self.wider and wider and now.layer.activation.power is None:
            inputs, recorded, wider = wider, self.wider, inputs
        seen = needs_evidence(self.options, now.layer, self.context.inputs)
        evidence = recorded.outputs(inputs, now, found) if seen else None
        progress.say("comparing neurons")
        problem = Problem(
            layer=now.layer,
            metric=inputs.metric,
            samples=samples,
            dtype=now.incoming.dtype,
            evidence=evidence if evidence is not None and evidence.enough else None,
            seed=self.options.seed,
            int8=self.options.int8 is not None,
            name=now.name,
            ordered=self.options.semantics == "budget",
            other_metrics=(wider.metric,) if wider else (),
            box=self._box(now),
            **stored_form(now, inputs.metric, samples),
        )
        spelled = now.spelling.polynomial if now.spelling else None
        fault = storage_fault(now.layer, samples, problem.dtype, spelled) or problem.fault
        if fault:
            raise NoMatch(fault)
        frontier = frontier_of(problem, self.options, progress, self.deadline)
        verdict = self._verdict(now, found)
        assumed = self.context.inputs.data is None
        choosing = inputs.to_choose_by if self.fitting.current.samples.spared else None
        return LayerStudy(
            problem, frontier, inputs.remark, verdict, choosing, wider_samples, assumed
        )

    def _box(self, now: Match) -> tuple[FloatArray, FloatArray] | None:
        """What the layer reads for inputs in the range that the user gave, if that is known."""
        inputs, current = self.context.inputs, self.fitting.current
        if not inputs.all_within_box or now.layer.activation.power is not None:
            return None
        box = inputs.box(current.graph)
        found = feature_bounds(current.graph, now.source, now.incoming.layout, box)
        if found is None or found.low.shape != (now.layer.inputs,):
            return None
        return found.low, found.high

    def _verdict(self, now: Match, found: Match) -> Evidence | None:
        if self.verdict is None:
            return None
        return self.verdict.outputs(self.verdict.inputs(now), now, found)


@contextmanager
def refusing_extremes() -> Iterator[None]:
    """Turn the failure of a factorisation into the reason why a layer is left alone."""
    try:
        yield
    except np.linalg.LinAlgError:
        raise NoMatch("its weights or inputs differ too much in size to be compared") from None


def needs_evidence(options: MergeOptions, layer: Layer, inputs: InputSource) -> bool:
    """Whether neurons are fitted to the outputs of the original network.

    Other activations than squares need data for that: on random inputs LeNet-300-100 loses more
    accuracy with it than without.
    """
    if layer.activation == SQUARE:
        return options.quotient_used == "minimal"
    return options.semantics == "budget" and inputs.data is not None


def frontier_of(
    problem: Problem, options: MergeOptions, progress: Progress, deadline: Deadline
) -> Frontier:
    """The frontier of a layer by the method that the options ask for."""
    if options.semantics != "budget":
        erode, chosen = options.semantics == "erode", (options.relation, options.quotient_used)
        if fault := threshold_fault(problem.layer.activation, *chosen, erode):
            raise NoMatch(fault)
        return ThresholdFrontier(
            problem,
            relation=options.relation,
            norm=options.norm,
            linkage=options.linkage,
            quotient=options.quotient_used,
            erode=erode,
            progress=progress,
        )
    if options.quotient_used == "single" and not problem.squares:
        raise NoMatch("--quotient single projects blocks of squares: give refit or minimal")
    problem = problem.with_prior()
    blocks: BlockSearch | EliminationSearch = EliminationSearch(problem, progress)
    if problem.squares:
        blocks = BlockSearch(problem, options.quotient_used != "single", progress)
    if options.quotient_used != "minimal":
        return blocks
    return FreeSearch(problem, blocks, progress, deadline)
