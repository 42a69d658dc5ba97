"""merge-neurons: affine(U) → x² → affine(V, c)  ⇒  the same with fewer neurons.

`budget`: the fewest neurons whose quotient changes the layer's output by at most ε (relative L2);
with `minimal` they are chosen freely, with `refit` and `single` they stand for blocks of neurons.
`paper`: neurons within ε of each other (the paper's Definition 1) become one block, and each block
the neurons that its quotient gives it. `erode`: the same with distances as ERODE computes them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import NamedTuple, get_args

import numpy as np

from onnxfde.errors import OptionError, UsageError
from onnxfde.graph.edit import write_layer
from onnxfde.graph.match import Match, find_layers
from onnxfde.graph.model import Graph
from onnxfde.graph.tensors import copy_of
from onnxfde.lumping.closure import Effort
from onnxfde.lumping.partition import Dendrogram, partition
from onnxfde.neurons.balance import balanced
from onnxfde.neurons.block_search import Budget, Reduced, constant_layer
from onnxfde.neurons.free_search import Minimal
from onnxfde.neurons.held_out import Evidence
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.lower_bound import lower_bound
from onnxfde.neurons.quotients import backward_single, forward_exact, forward_single
from onnxfde.neurons.refit import refit
from onnxfde.numbers import ROUNDOFF, Blocks
from onnxfde.options import (
    DEFAULT_EPS,
    DEFAULT_SEED,
    Int8,
    Linkage,
    Norm,
    Quotient,
    Relation,
    Semantics,
)
from onnxfde.passes.result import LayerChange, PassResult
from onnxfde.progress import Tell, Work, silent
from onnxfde.running.layer_inputs import LayerInputs, Probe
from onnxfde.threads import few_threads

MOST_PAIRED = 2048


class Located(NamedTuple):
    """A layer and the model it lies in."""

    graph: Graph
    match: Match


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a layer becomes, or else the smallest ε at which it would become anything."""

    reduced: Reduced | None
    useful_eps: float | None = None
    lossless: int | None = None
    evidence: Evidence | None = None

    def measured(self, before: Layer, after: Layer, inputs: LayerInputs) -> float:
        """The change on rows held out, where there are any, or else on the samples."""
        if self.evidence is None or self.reduced is None:
            return before.change_to(after, inputs.samples)
        return self.evidence.held_out.error(after)


@dataclass(frozen=True)
class MergeNeurons:
    """Merge the neurons of square layers.

    >>> MergeNeurons(eps=0.05, semantics="paper", relation="backward").quotient_used
    'single'
    """

    eps: float = DEFAULT_EPS
    """Allowed relative change of a layer's output (budget), or pairwise threshold (paper)."""
    layer_eps: tuple[tuple[str, float], ...] = ()
    """ε for single layers, by name."""
    neurons: int | None = None
    """Leave this many neurons in each layer, instead of ε."""
    keep: float | None = None
    """Leave this fraction of each layer's neurons, instead of ε."""
    semantics: Semantics = "budget"
    quotient: Quotient | None = None
    """How a layer becomes fewer neurons; minimal for budget and single for paper unless given."""
    seed: int = DEFAULT_SEED
    """Of the random starts of minimal."""
    relation: Relation = "forward"
    norm: Norm = "sum"
    linkage: Linkage = "closure"
    layers: tuple[str, ...] = ()
    """Only layers whose name matches one of these globs."""
    skip: tuple[str, ...] = ()
    """Not the layers whose name matches one of these globs."""
    int8: Int8 | None = None
    """How values will be rounded to 8 bits: minimal then avoids large weights that cancel."""

    def __post_init__(self) -> None:
        """Refuse options that make no sense, alone or together."""
        for name, kind in CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in get_args(kind):
                known = ", ".join(get_args(kind))
                raise UsageError(f"--{name} '{value}' is not one of {known}")
        self.check_values()
        self.check_combinations()

    def check_values(self) -> None:
        """Refuse numbers that make no sense."""
        for name, eps in (("", self.eps), *self.layer_eps):
            if not (math.isfinite(eps) and eps >= 0):
                raise OptionError(f"--eps {name and name + '='}{eps} is not a number ≥ 0")
        if self.neurons is not None and self.neurons < 1:
            raise OptionError(f"--neurons {self.neurons} is not a number ≥ 1")
        if self.seed < 0:
            raise OptionError(f"--seed {self.seed} is not a number ≥ 0")
        if self.keep is not None and not 0 < self.keep <= 1:
            raise OptionError(f"--keep {self.keep:.4%} is not a share above 0 % and up to 100 %")

    def check_combinations(self) -> None:
        """Refuse options that contradict each other."""
        if self.neurons is not None and self.keep is not None:
            raise UsageError("--neurons and --keep cannot be combined: give one")
        if self.layer_eps and (self.neurons is not None or self.keep is not None):
            raise UsageError("--eps cannot be combined with --neurons or --keep")
        if self.quotient == "minimal" and self.semantics != "budget":
            raise UsageError("--quotient minimal needs --semantics budget")
        if self.quotient == "exact" and (self.semantics == "budget" or self.relation == "backward"):
            raise UsageError("--quotient exact needs --semantics paper and --relation forward")
        if self.quotient == "exact" and (self.neurons is not None or self.keep is not None):
            raise UsageError("--quotient exact decides the count: give --eps")
        if self.semantics == "erode" and (self.norm, self.linkage) != PAPER_DEFAULTS[1:]:
            raise UsageError("--norm and --linkage need --semantics paper: ERODE sums and chains")
        if self.norm == "max" and self.relation == "forward":
            raise UsageError("--norm max needs --relation backward")
        chosen = (self.relation, self.norm, self.linkage)
        if self.semantics == "budget" and chosen != PAPER_DEFAULTS:
            raise UsageError("--relation, --norm and --linkage need --semantics paper")

    @property
    def quotient_used(self) -> Quotient:
        """The quotient, with the default of the semantics."""
        return self.quotient or ("minimal" if self.semantics == "budget" else "single")

    def apply(
        self, graph: Graph, probe: Probe | None = None, work: Work | None = None
    ) -> PassResult:
        """Merge the neurons of every selected layer, in graph order."""
        probe, work = probe or Probe(), work or Work()
        with work.timed("match"):
            matches, refused = find_layers(graph)
        originals = {m.name: Located(graph, m) for m in matches}
        changes = []
        for name in self.selected(list(originals)):
            match = next(m for m in matches if m.name == name)
            work.say(f"{name}: {match.layer.inputs}-{match.layer.neurons}-{match.layer.outputs}")
            change, layer = self.merged(Located(graph, match), originals[name], probe, work)
            changes.append(change)
            if layer is not None:
                with work.timed("quotient"):
                    graph = replaced(graph, name, layer)
                with work.timed("match"):
                    matches, _ = find_layers(graph)
        return PassResult(graph.model, tuple(changes), tuple(refused))

    def selected(self, names: list[str]) -> list[str]:
        """The layers to work on; unknown names and globs without a match are errors."""
        for wanted in (*(name for name, _ in self.layer_eps), *self.layers, *self.skip):
            if names and not any(listed(n, (wanted,)) for n in names):
                raise OptionError(
                    f"no layer is called '{wanted}'; the layers are {', '.join(names)}"
                )
        chosen = [n for n in names if not self.layers or listed(n, self.layers)]
        return [n for n in chosen if not listed(n, self.skip)]

    def merged(
        self, place: Located, original: Located, probe: Probe, work: Work
    ) -> tuple[LayerChange, Layer | None]:
        """What becomes of one layer, and its replacement if it changes."""
        match = place.match
        with work.timed("partition"), few_threads(match.layer.size):
            inputs = probe.layer_inputs(place.graph, match, work.tick)
            if self.semantics == "budget":
                outcome = self.budget(place, original, probe, inputs, work)
            else:
                outcome = self.threshold(match, inputs, work)
        reduced, remark = outcome.reduced, inputs.remark
        if reduced and not reduced.layer.finite:
            reduced, remark = None, "its merged weights overflow the stored type"
        layer = reduced.layer if reduced else match.layer
        change = LayerChange(
            name=match.name,
            inputs=layer.inputs,
            outputs=layer.outputs,
            neurons_before=match.layer.neurons,
            neurons_after=layer.neurons,
            neurons_lossless=outcome.lossless,
            parameters_before=match.layer.size,
            parameters_after=layer.parameters if reduced else layer.size,
            blocks=reduced.blocks if reduced else tuple((i,) for i in range(layer.neurons)),
            eps=None if self.count(match.layer) is not None else self.eps_of(match.name),
            error=reduced.error if reduced else 0.0,
            lower_bound=lower_bound(inputs.metric, match.layer, layer.neurons),
            measured_error=outcome.measured(match.layer, layer, inputs),
            dtype=match.incoming.dtype.name,
            useful_eps=outcome.useful_eps,
            remark=remark,
        )
        return change, reduced.layer if reduced else None

    def scaled(self, factor: float) -> MergeNeurons:
        """The same with every ε multiplied."""
        by_layer = tuple((name, factor * eps) for name, eps in self.layer_eps)
        return replace(self, eps=factor * self.eps, layer_eps=by_layer)

    def eps_of(self, name: str) -> float:
        """ε of one layer: its own, else that of a glob, else the common one."""
        own = dict(self.layer_eps)
        matching = (eps for glob, eps in self.layer_eps if fnmatchcase(name, glob))
        return own.get(name, next(matching, self.eps))

    def count(self, layer: Layer) -> int | None:
        """How many neurons to leave in a layer, if that is what was asked for."""
        if self.keep is not None:
            return max(1, math.ceil(self.keep * layer.neurons - 1e-9))
        return self.neurons

    def budget(
        self, place: Located, original: Located, probe: Probe, inputs: LayerInputs, work: Work
    ) -> Outcome:
        """The fewest neurons within ε, or the smallest ε that would do something."""
        match, evidence = place.match, None
        if self.quotient_used == "minimal":
            merged = place.graph is not original.graph
            evidence = probe.evidence(inputs, match, *original, merged, work.tick)
        search = self.search(match, inputs, evidence, work.tell)
        count = self.count(match.layer)
        found = search.within(self.eps_of(match.name)) if count is None else search.at_most(count)
        useful = search.threshold() if found is None and count is None else None
        useful = useful if useful is not None and math.isfinite(useful) else None
        lossless = search.lossless.layer.neurons if search.lossless else match.layer.neurons
        return Outcome(found, useful, lossless, evidence)

    def search(
        self,
        match: Match,
        inputs: LayerInputs,
        evidence: Evidence | None = None,
        tell: Tell = silent,
    ) -> Budget | Minimal:
        """The search for fewer neurons in one layer."""
        budget = budget_search(match, inputs, self.quotient_used != "single", tell)
        if self.quotient_used != "minimal":
            return budget
        return Minimal(budget, evidence, self.seed, self.int8 is not None)

    def threshold(self, match: Match, inputs: LayerInputs, work: Work) -> Outcome:
        """One quotient for each block of the ε-partition."""
        alive, dtype = match.layer.without_constants(), match.incoming.dtype
        if not alive.neurons:
            return Outcome(constant_layer(match.layer, dtype))
        blocks = self.blocks(alive, match, work)
        if len(blocks) == match.layer.neurons:
            return Outcome(None, self.smallest_gap(alive))
        quotient = self.block_quotient(alive, blocks)
        if self.quotient_used == "refit":
            quotient = refit(alive, quotient, inputs.metric)
        stored = balanced(quotient, match.layer, inputs.metric).stored_as(dtype)
        if stored.neurons >= match.layer.neurons:
            return Outcome(None)
        numbers = np.flatnonzero(match.layer.alive)
        named = tuple(tuple(int(numbers[i]) for i in block) for block in blocks)
        return Outcome(Reduced(stored, named, inputs.metric.relative_error(match.layer, stored)))

    def blocks(self, layer: Layer, match: Match, work: Work) -> Blocks:
        """The ε-partition, or the finest one that is small enough."""
        count, erode = self.count(match.layer), self.semantics == "erode"
        if count is None:
            eps, effort = self.eps_of(match.name), Effort(tell=work.tell)
            chosen = (self.relation, self.norm, self.linkage)
            return partition(layer, eps, *chosen, erode=erode, effort=effort)
        if layer.neurons > MOST_PAIRED:
            raise OptionError(
                f"--neurons and --keep look at every pair with --semantics {self.semantics}; "
                f"layer '{match.name}' has more than {MOST_PAIRED:,}: give --eps"
            )
        return self.dendrogram(layer).at_most(count)

    def dendrogram(self, layer: Layer) -> Dendrogram:
        """Every partition of a small layer."""
        erode = self.semantics == "erode"
        return Dendrogram.of(layer, self.relation, self.norm, self.linkage, erode=erode)

    def smallest_gap(self, layer: Layer) -> float | None:
        """The smallest ε that joins anything, for layers small enough to look at every pair."""
        return self.dendrogram(layer).threshold() if layer.neurons <= MOST_PAIRED else None

    def block_quotient(self, layer: Layer, blocks: Blocks) -> Layer:
        """The neurons of each block, before any refit."""
        if self.relation == "backward":
            return backward_single(layer, blocks)
        forward = forward_exact if self.quotient == "exact" else forward_single
        return forward(layer, blocks)


CHOICES = {
    "semantics": Semantics,
    "quotient": Quotient,
    "relation": Relation,
    "norm": Norm,
    "linkage": Linkage,
    "int8": Int8,
}
PAPER_DEFAULTS = ("forward", "sum", "closure")


def listed(name: str, globs: tuple[str, ...]) -> bool:
    """Whether a layer's name is given, or matches a glob."""
    return any(name == glob or fnmatchcase(name, glob) for glob in globs)


def budget_search(
    match: Match, inputs: LayerInputs, refitted: bool = True, tell: Tell = silent
) -> Budget:
    """A search among the blocks of a matched layer."""
    dtype = match.incoming.dtype
    arrays = (match.layer, inputs.metric, inputs.samples)
    return Budget(*arrays, ROUNDOFF[dtype.name], dtype, refitted, tell)


def replaced(graph: Graph, name: str, layer: Layer) -> Graph:
    """A copy of the model with one layer rewritten."""
    copy = Graph(copy_of(graph.model), graph.folder)
    match = next(m for m in find_layers(copy)[0] if m.name == name)
    write_layer(copy, match, layer)
    return Graph(copy.model, graph.folder)
