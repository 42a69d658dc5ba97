"""From a layer in the graph to its problem and its frontier, each made once and remembered.

    match → what flows into it (`recording`) → `Problem` → `Frontier`

A layer behind others that were merged is another problem for every choice made there, so a study is
remembered together with the choices before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
from onnxfde.progress import Progress
from onnxfde.running.layer_inputs import LayerInputs, evidence_for, layer_inputs, record_layers
from onnxfde.running.recording import Recording


@dataclass(frozen=True, eq=False)
class LayerStudy:
    """One layer, what is known of its inputs, and how few neurons it needs."""

    problem: Problem
    frontier: Frontier
    inputs: LayerInputs

    def measured(self, after: Layer, merged: bool) -> float:
        """The change on rows held out, where there are any, or else on the samples."""
        if self.problem.evidence is None or not merged:
            return self.problem.layer.change_to(after, self.inputs.samples)
        return self.problem.evidence.held_out.error(after)


@dataclass(eq=False)
class LayerStudies:
    """The layers of one network while they are merged, one after the other."""

    options: MergeOptions
    context: Context
    original: Recording
    current: Recording
    """Of the network as it is now, with some layers merged."""
    chosen: tuple[Reduced, ...] = ()
    """What earlier layers became."""

    @classmethod
    def begin(
        cls, options: MergeOptions, context: Context, graph: Graph, work: Graph, layers: list[Match]
    ) -> LayerStudies:
        """Record what flows in a network; `work` is the copy of it that will be edited."""
        memory = {} if context.memory is None else context.memory
        if graph not in memory:
            memory[graph] = Recording.of(graph, context.inputs, context.progress)
            taught = options.quotient_used == "minimal"
            record_layers(memory[graph], layers, with_results=taught)
        original: Recording = memory[graph]
        return cls(options, context, original, original.on(work))

    def of(self, now: Match, found: Match) -> LayerStudy:
        """The study of a layer as it is `now`; `found` is the layer in the original network."""
        method = (self.options.semantics, self.options.quotient_used, self.options.relation)
        details = (self.options.norm, self.options.linkage, self.options.seed, self.options.int8)
        key = (self.original, found.name, self.chosen, method, details)
        memory: dict[Any, LayerStudy] = {} if self.context.memory is None else self.context.memory
        if key not in memory:
            memory[key] = self._made(now, found)
        return memory[key]

    def edited(self, match: Match, became: Reduced) -> None:
        """Note that a layer was replaced."""
        self.chosen = (*self.chosen, became)
        self.current.edited(match.incoming.node.output[0])

    def _made(self, now: Match, found: Match) -> LayerStudy:
        inputs = layer_inputs(self.current, now)
        evidence = None
        if self.options.quotient_used == "minimal":
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
        )
        return LayerStudy(
            problem, frontier_of(problem, self.options, self.context.progress), inputs
        )


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
