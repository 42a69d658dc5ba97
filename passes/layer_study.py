"""What a pass needs to know about a layer: its problem, and the frontier of smaller layers.

    layer in the graph → its inputs (`layer_inputs`) → `Problem` → `Frontier`

If layers before it were merged, a layer sees other inputs. Each combination of what those layers
became is studied once and remembered.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnxfde.graph.match import Match
from onnxfde.graph.model import Graph
from onnxfde.lumping.threshold_frontier import ThresholdFrontier
from onnxfde.neurons.block_search import BlockSearch
from onnxfde.neurons.free_search import FreeSearch
from onnxfde.neurons.frontier import Frontier, Reduced
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.problem import Problem
from onnxfde.options import MergeOptions
from onnxfde.passes.result import Context
from onnxfde.passes.stored_form import stored_form
from onnxfde.progress import Progress
from onnxfde.running.layer_inputs import LayerInputs, evidence_for, layer_inputs, record_layers
from onnxfde.running.recording import Recording


@dataclass(frozen=True, eq=False)
class LayerStudy:
    """One layer: the problem of shrinking it, the frontier of solutions, and its inputs."""

    problem: Problem
    frontier: Frontier
    inputs: LayerInputs

    def measured_error(self, after: Layer, merged: bool) -> float:
        """The change on held-out rows; if there are none or nothing was merged, on the samples."""
        if self.problem.evidence is None or not merged:
            return self.problem.layer.change_to(after, self.inputs.samples)
        return self.problem.evidence.held_out.error(after)


@dataclass(eq=False)
class LayerStudies:
    """Studies of the layers of one network while they are merged one after the other."""

    options: MergeOptions
    context: Context
    original: Recording
    """Values in the original network."""
    current: Recording
    """Values in the network as it is now, with some layers merged."""
    replaced: tuple[Reduced, ...] = ()
    """What the layers merged so far became."""

    @classmethod
    def started(
        cls, options: MergeOptions, context: Context, graph: Graph, work: Graph, layers: list[Match]
    ) -> LayerStudies:
        """Record the inputs of all layers; `work` is the copy of the graph that will be edited."""

        def record() -> Recording:
            recording = Recording.of(graph, context.inputs, context.progress)
            record_layers(recording, layers, with_results=needs_evidence(options))
            return recording

        original = context.remembered(graph, record)
        return cls(options, context, original, original.for_copy(work))

    def study(self, now: Match, found: Match) -> LayerStudy:
        """The study of a layer as it is `now`; `found` is the same layer in the original."""
        key = (self.original, found.name, self.replaced, self.options.method)
        return self.context.remembered(key, lambda: self._new_study(now, found))

    def note_replaced(self, match: Match, became: Reduced) -> None:
        """Take note that a layer was replaced, which changes the values after it."""
        self.replaced = (*self.replaced, became)
        self.current.forget(match.incoming.node.output[0])

    def _new_study(self, now: Match, found: Match) -> LayerStudy:
        inputs = layer_inputs(self.current, now)
        evidence = None
        if needs_evidence(self.options):
            evidence = evidence_for(inputs, now, self.current, found, self.original)
        problem = Problem(
            layer=now.layer,
            metric=inputs.metric,
            samples=inputs.samples,
            dtype=now.incoming.dtype,
            evidence=evidence,
            seed=self.options.seed,
            int8=self.options.int8 is not None,
            name=now.name,
            **stored_form(now, inputs.metric, inputs.samples),
        )
        frontier = frontier_of(problem, self.options, self.context.progress)
        return LayerStudy(problem, frontier, inputs)


def needs_evidence(options: MergeOptions) -> bool:
    """Whether neurons are fitted to the outputs of the original network."""
    return options.quotient_used == "minimal"


def frontier_of(problem: Problem, options: MergeOptions, progress: Progress) -> Frontier:
    """The frontier of a layer by the method that the options ask for."""
    if options.semantics != "budget":
        return ThresholdFrontier(
            problem,
            relation=options.relation,
            norm=options.norm,
            linkage=options.linkage,
            quotient=options.quotient_used,
            erode=options.semantics == "erode",
            progress=progress,
        )
    blocks = BlockSearch(problem, options.quotient_used != "single", progress)
    return FreeSearch(problem, blocks, progress) if options.quotient_used == "minimal" else blocks
