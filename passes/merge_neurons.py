"""merge-neurons: affine(U) → σ → affine(V, c)  ⇒  the same with fewer neurons.

`budget`: the fewest neurons that change the layer's output by at most ε (relative L2). With
`minimal` they are chosen freely, with `refit` and `single` each stands for a block of neurons.
`paper`: neurons within ε of each other (the paper's Definition 1) form a block, and the quotient
decides how many neurons replace a block. `erode`: the same with distances as ERODE computes them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from onnxfde.graph.affine_maps import NoMatch
from onnxfde.graph.edit import write_layer
from onnxfde.graph.find_axes import find_axes
from onnxfde.graph.match import Match, Refusal, find_layers, reread, size_of
from onnxfde.graph.model import Graph
from onnxfde.neurons.frontier import Reduced
from onnxfde.neurons.original_layer import CANCELLATION
from onnxfde.neurons.problem import Problem
from onnxfde.options import DEFAULT_EPS
from onnxfde.passes.capped_merging import CappedMerging
from onnxfde.passes.layer_study import LayerStudies, LayerStudy, refusing_extremes
from onnxfde.passes.result import Context, LayerChange, PassResult
from onnxfde.threads import few_threads

ASK_FOR_DATA = (
    "merged without loss only, because nothing is known of its inputs: give --data to merge more "
    "(or --eps or --keep, to merge on an assumption)"
)
IN_RANGE_ONLY = (
    "neurons were removed because they do nothing, or are linear, for all inputs in --input-range"
)
FEW_LEFT = (
    "fewer than half of the neurons are left on an assumption about the inputs, and the error on "
    "real inputs is not known: give --data"
)


@dataclass(frozen=True)
class MergeNeurons(CappedMerging):
    """Merge the neurons of layers.

    >>> MergeNeurons(eps=0.05, semantics="paper", relation="backward").quotient_used
    'single'
    """

    name: ClassVar[str] = "merge-neurons"

    def eps_of(self, study: LayerStudy) -> float:
        """The ε of a layer: 0 if none is given and too little is known of its inputs."""
        given = self.eps_given(study.problem.name)
        lossless = study.lossless_unless_asked and self.semantics == "budget"
        unasked = 0.0 if lossless else DEFAULT_EPS
        return min(unasked if given is None else given, self.most_eps)

    def apply(self, graph: Graph, context: Context | None = None) -> PassResult:
        """Merge the neurons of every selected layer, in graph order."""
        context = context or Context()
        progress, work = context.progress, graph.copied()
        with progress.timed("match"):
            matches, refused = find_layers(work)
            sizes = tuple(size_of(work, match) for match in matches)
        wanted = self.selected(
            [match.name for match in matches], lambda: [a.name for a in find_axes(work)[0]]
        )
        chosen = [match for match in matches if match.name in wanted]
        if not chosen:
            return PassResult(graph, refused=tuple(refused), found=sizes)
        with progress.timed("partition"):
            studies = LayerStudies.started(self, context, graph, work, chosen)
        changes = []
        for number, found in enumerate(chosen, start=1):
            with progress.on_layer(found.title(number, len(chosen))) as outcome:
                try:
                    with progress.timed("match"):
                        now = reread(work, found) if studies.replaced else found
                    studies.deadline = context.deadline.for_part(
                        share_of_work(chosen[number - 1 :])
                    )
                    changes.append(self.merged(work, now, found, studies, context))
                    outcome.text = changes[-1].outcome
                except NoMatch as reason:
                    refused.append(Refusal(found.name, str(reason)))
                    outcome.text = f"left alone: {reason}"
            studies.leave(found, chosen[number:])
        result = work if any(change.changed for change in changes) else graph
        return PassResult(result, tuple(changes), tuple(refused), found=sizes)

    def merged(
        self, work: Graph, now: Match, found: Match, studies: LayerStudies, context: Context
    ) -> LayerChange:
        """Merge one layer of `work` in place, if the options allow it; returns what changed."""
        progress, layer = context.progress, now.layer
        with progress.timed("partition"), few_threads(layer.size), refusing_extremes():
            study = studies.study(now, found)
            progress.say("looking for fewer neurons")
            reduced, useful = self.choice(study)
            progress.say("measuring the error")
            change = self.change(study, reduced, useful)
            if context.frontiers:
                change = replace(change, frontier=study.curve())
        if reduced is not None and change.changed:
            with progress.timed("quotient"):
                write_layer(work, now, reduced.layer, study.problem.kept)
                studies.note_replaced(now, reduced)
        return change

    def choice(self, study: LayerStudy) -> tuple[Reduced | None, float | None]:
        """The smaller layer that the options ask for; if there is none, an ε that gives one."""
        frontier, problem = study.frontier, study.problem
        count = self.count_of(problem.name, problem.layer.neurons)
        if count is not None:
            allowed = dict(self.allowed).get(problem.name)
            return frontier.at_most(count) if allowed is None else frontier.within(allowed), None
        eps = self.eps_of(study)
        found = frontier.within(eps)
        useful = frontier.smallest_eps() if found is None else None
        helps = useful is not None and math.isfinite(useful) and useful > eps
        return found, useful if helps else None

    def change(
        self, study: LayerStudy, reduced: Reduced | None, useful: float | None
    ) -> LayerChange:
        """What the report says about a layer."""
        problem, range_only = study.problem, study.holds_in_range_only(reduced)
        remark = self.remark(study, reduced, range_only)
        fault = problem.storage_fault(reduced.layer) if reduced else None
        if fault:
            reduced, range_only = None, False
            remark = f"left alone, because if merged {fault}"
        before, after = problem.layer, reduced.layer if reduced else problem.layer
        by_count = self.asks_for_count
        measured = study.measured_error(after, reduced is not None, range_only)
        own = study.own_error(after)
        return LayerChange(
            name=problem.name,
            inputs=before.inputs,
            outputs=before.outputs,
            neurons_before=before.neurons,
            neurons_after=after.neurons,
            neurons_lossless=study.frontier.neurons_lossless,
            parameters_before=before.size,
            parameters_after=after.parameters if reduced else before.size,
            blocks=reduced.blocks if reduced else tuple((i,) for i in range(before.neurons)),
            eps=None if by_count else self.eps_of(study),
            error=reduced.error if reduced else 0.0,
            lower_bound=bound_below(problem, after.neurons, reduced),
            measured_error=measured.value,
            measured_error_interval=measured.interval,
            measured_rows=measured.rows,
            dtype=problem.dtype.name,
            useful_eps=useful,
            remark=remark,
            activation=before.activation.title,
            cut=study.cut,
            range_only=range_only,
            own_error=own.value if own else None,
            own_error_interval=own.interval if own else None,
        )

    def remark(self, study: LayerStudy, reduced: Reduced | None, range_only: bool) -> str | None:
        """What to know about a layer: of its inputs, of the search, and of what data would give."""
        before = study.problem.layer.neurons
        found = [study.remarks, IN_RANGE_ONLY if range_only else None]
        if study.lossless_unless_asked and self.semantics == "budget":
            if not self.asks_for_count and self.eps_given(study.problem.name) is None:
                found.append(ASK_FOR_DATA)
            elif reduced and 2 * reduced.layer.neurons < before:
                found.append(None if reduced is study.frontier.lossless else FEW_LEFT)
        return "; ".join(filter(None, found)) or None


def bound_below(problem: Problem, count: int, found: Reduced | None) -> float | None:
    """The least error of so many neurons; 0 where the error found is almost that already."""
    if found is not None and found.error < CANCELLATION and count <= problem.layer.inputs:
        return 0.0
    return problem.lower_bound(count)


def share_of_work(left: Sequence[Match]) -> float:
    """What searching the first of the layers that are left takes, of what all of them take."""
    works = [m.layer.neurons**2 * (m.layer.inputs + m.layer.outputs) for m in left]
    return works[0] / max(sum(works), 1)
