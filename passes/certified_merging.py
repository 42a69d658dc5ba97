"""Merge neurons, fold affine maps and certify the result, with a limit on the certified error.

largest cap on ε with  certified error ≤ limit        (found by bisection among `EPS_CAPS`)
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass, replace

from onnxfde.graph.match import find_layers
from onnxfde.graph.model import Graph
from onnxfde.options import Options
from onnxfde.passes.goal_merging import GoalMerging
from onnxfde.passes.goal_outcome import GoalOutcome
from onnxfde.passes.goal_search import merged_by
from onnxfde.passes.merge_neurons import MergeNeurons
from onnxfde.passes.result import Context, PassResult
from onnxfde.proof.certificate import Certificate, Proof

EPS_CAPS = (*(2.0 ** (1 - k / 4) for k in range(97)), 0.0)
"""Caps on ε, largest first: from 2, above any useful ε, to 2⁻²³, the rounding of float32, then 0.
Each is 16 % below the last (chosen; not tuned). They do not depend on the ε asked for, so that any
large ε gives the same result."""


@dataclass(frozen=True, eq=False)
class CertifiedResult:
    """What the passes made, and its certificate if one was wanted."""

    result: PassResult
    certificate: Certificate | None
    goal: GoalOutcome | None = None
    """What was asked for of the whole model, if anything was."""

    def undone(self, original: Graph) -> CertifiedResult:
        """The original as the result, with the certificate that was not good enough."""
        known = {match.name: match.layer for match in find_layers(original)[0]}
        layers = tuple(layer.undone(known.get(layer.name)) for layer in self.result.layers)
        result = replace(self.result, graph=original, layers=layers, folded=())
        return CertifiedResult(result, self.certificate)

    def remarked(self, remark: str) -> CertifiedResult:
        """The same with a remark on every layer."""
        layers = tuple(replace(layer, remark=remark) for layer in self.result.layers)
        return replace(self, result=replace(self.result, layers=layers))


@dataclass(frozen=True)
class CertifiedMerging:
    """Merges as much as the options and a limit on the certified error allow."""

    merge: MergeNeurons
    proof: Proof
    """Which certificate is wanted, and how large its bound may be."""

    @classmethod
    def of(cls, options: Options) -> CertifiedMerging:
        """What a user asked for."""
        limit = options.max_certified_error
        wanted = True if limit is not None else options.certify
        return cls(MergeNeurons.of(options), Proof(False if options.int8 else wanted, limit))

    def apply(self, original: Graph, context: Context) -> CertifiedResult:
        """Apply the passes; if the certificate exceeds its limit, again with smaller ε.

        If no ε keeps the limit and merges anything, the original is the result. If the user asked
        for a number of neurons, or there is no certificate, exceeding the limit is an error.
        """
        goal = GoalMerging.of(self.merge)
        if goal is not None:
            return self.towards(goal, original, context)
        first = self.applied(self.merge, original, context)
        if first.certificate is None or self.proof.holds(first.certificate):
            return first
        if self.merge.asks_for_count or first.certificate.unavailable:
            raise self.proof.failure(first.certificate)
        return self.with_smaller_eps(original, context) or first.undone(original)

    def towards(self, goal: GoalMerging, original: Graph, context: Context) -> CertifiedResult:
        """Merge until a goal of the whole model is met."""
        result, outcome = goal.apply(original, replace(context, memory={}))
        found = replace(self.certified(result, original, context), goal=outcome)
        if found.certificate is not None and not self.proof.holds(found.certificate):
            raise self.proof.failure(found.certificate)
        return found

    @property
    def lossless(self) -> CertifiedMerging | None:
        """The same at ε = 0; None if that is no other result, or ε does not bound the change."""
        capped = self.merge.capped(0.0)
        bounded = self.merge.semantics == "budget" and not self.merge.asks_for_count
        return replace(self, merge=capped) if bounded and capped != self.merge else None

    @property
    def caps(self) -> tuple[float, ...]:
        """The caps to try: a threshold on weights has no scale of its own, and starts from ε."""
        if self.merge.semantics == "budget":
            return EPS_CAPS
        return tuple(cap * self.merge.largest_eps for cap in EPS_CAPS)

    def with_smaller_eps(self, original: Graph, context: Context) -> CertifiedResult | None:
        """The result of the largest cap on ε that keeps the limit; None if it merges nothing."""
        tried: dict[float, CertifiedResult] = {}
        note = context.progress.note
        note("note: the certified change exceeds its limit: trying smaller ε")
        context = replace(context, progress=context.progress.without_notes())

        def keeps_limit(cap: float) -> bool:
            capped = self.merge.capped(cap)
            if capped == self.merge:
                return False
            found = self.applied(capped, original, context)
            if self.proof.holds(found.certificate):
                tried[cap] = found
            most = found.certificate.largest if found.certificate else math.inf
            note(f"note: ε at most {cap:.2g}: certified change {most:.2g}")
            return cap in tried

        caps = self.caps
        at = bisect.bisect_left(caps, True, key=keeps_limit)
        best = tried[caps[at]] if at < len(caps) else None
        return best if best is not None and best.result.changed else None

    def applied(self, merge: MergeNeurons, original: Graph, context: Context) -> CertifiedResult:
        """Apply the passes with one setting, and certify the result if that is wanted."""
        return self.certified(merged_by(merge, original, context), original, context)

    def certified(self, result: PassResult, original: Graph, context: Context) -> CertifiedResult:
        """A result with its certificate, if one is wanted."""
        context.progress.say("bounding the change of outputs")
        with context.progress.timed("certify"):
            box = context.inputs.box(original)
            return CertifiedResult(result, self.proof.of(original, result.graph, box, result.found))
