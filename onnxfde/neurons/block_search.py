"""The fewest neurons that keep a layer within ε: the relative change of its centred output.

Candidates come from the two orders of `merging`; each is built, rounded to the stored dtype, and
accepted by what it is then: within ε in the metric, or, at ε = 0, equal up to rounding,

    |o′(x) − o(x)| ≤ 8·u·A(x)     on sample inputs x, u the unit roundoff, A `Layer.magnitude`,

and no further away in the metric than twice what rounding its weights anew makes. ε below 16·u is
the same as 0.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from onnxfde.neurons.balance import balanced
from onnxfde.neurons.kernels import Metric, kernel, kernel_scale, norm
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.merge_order import MergeTree, canonical, merge_tree
from onnxfde.neurons.pivoted_basis import PivotedBasis, pivoted_basis
from onnxfde.neurons.refit import refit, ridged_gram, squared
from onnxfde.numbers import Blocks, FloatArray, Indices
from onnxfde.progress import Tell, silent

ROUNDING_STEPS = 16
ROUNDING_DRAWS = 2
ESTIMATE_NOISE = 1e-6
"""Errors estimated from Gram matrices are no better than this, relative to the layer's output."""
WINDOW = 8
FULL_SCAN = 32


@dataclass(frozen=True, eq=False)
class Reduced:
    """A smaller layer, the blocks of neurons it stands for, and its error in the metric."""

    layer: Layer
    blocks: Blocks
    error: float


@dataclass(frozen=True, eq=False)
class Budget:
    """A search for fewer neurons in one layer."""

    original: Layer
    metric: Metric
    samples: FloatArray
    """Inputs of the layer on which "equal up to rounding" is decided."""
    roundoff: float
    dtype: npt.DTypeLike
    refitted: bool = True
    """Whether outgoing weights are refitted, or only projected (quotient `single`)."""
    tell: Tell = silent

    def within(self, eps: float) -> Reduced | None:
        """The fewest neurons within ε, or None when that is all of them."""
        best = self.lossless
        if eps < self.floor or not self.layer.neurons:
            return best
        return self._from_tree(eps, best.layer.neurons if best else self.layer.neurons) or best

    def at_most(self, count: int) -> Reduced | None:
        """The layer with at most this many neurons; fewer when nothing is lost by it."""
        lossless = self.lossless
        if lossless and lossless.layer.neurons <= count:
            return lossless
        return self.candidate(count) if count < self.layer.neurons else lossless

    @property
    def floor(self) -> float:
        """The smallest ε that is more than rounding."""
        return ROUNDING_STEPS * self.roundoff

    def threshold(self) -> float:
        """The smallest ε at which a neuron can go."""
        count = self.layer.neurons - 1
        if count < 1:
            return 0.0
        return self.candidate(count).error

    @cached_property
    def lossless(self) -> Reduced | None:
        """The fewest neurons that are equal up to rounding; searching on finds no fewer."""
        if not self.layer.neurons:
            return constant_layer(self.original, self.dtype)
        found = self._equal()
        while found is not None:
            again = replace(self, original=found.layer)._equal()
            if again is None or not self.accepts(again, 0.0):
                break
            joined = tuple(
                tuple(sorted(i for b in block for i in found.blocks[b])) for block in again.blocks
            )
            found = Reduced(
                again.layer, joined, self.metric.relative_error(self.layer, again.layer)
            )
        return found

    def _equal(self) -> Reduced | None:
        if not self.refitted:
            return self._from_tree(0.0, self.layer.neurons) or self._without_constants()
        return self._from_basis() if self._dependent() else self._without_constants()

    @cached_property
    def _canonical(self) -> tuple[Layer, Indices]:
        layer, order = canonical(self.original.without_constants())
        return layer, np.flatnonzero(self.original.alive)[order]

    @property
    def layer(self) -> Layer:
        """The original without constant neurons, in canonical form."""
        return self._canonical[0]

    @cached_property
    def rows(self) -> FloatArray:
        """Its neurons, whitened."""
        return self.metric.whiten(self.layer.incoming)

    @cached_property
    def total(self) -> float:
        """The norm of its centred output."""
        return norm(self.rows, self.layer.outgoing)

    @cached_property
    def tree(self) -> MergeTree:
        """The order in which its neurons are joined."""
        return merge_tree(self.rows, self.layer.outgoing, self.tell)

    @cached_property
    def _basis(self) -> PivotedBasis:
        return pivoted_basis(self.rows, self.layer.outgoing)

    @cached_property
    def _rounding(self) -> FloatArray:
        return ROUNDING_STEPS / 2 * self.roundoff * self.original.magnitude(self.samples)

    @cached_property
    def _noise(self) -> float:
        """Twice the relative error that rounding every weight anew makes, the worst of three."""
        rng = np.random.default_rng(0)

        def rounded(a: FloatArray) -> FloatArray:
            return a * (1 + self.roundoff * rng.uniform(-1, 1, a.shape))

        layer = self.layer
        drawn = [
            Layer(rounded(layer.incoming), rounded(layer.outgoing), layer.offset) for _ in range(3)
        ]
        return ROUNDING_DRAWS * max(self.metric.relative_error(layer, other) for other in drawn)

    @cached_property
    def _reference(self) -> FloatArray:
        return self.original(self.samples)

    def allowed(self, eps: float) -> float:
        """An upper limit for the estimated error of a candidate worth building."""
        return (max(eps, self._noise) + ESTIMATE_NOISE) * self.total

    def accepts(self, candidate: Reduced, eps: float) -> bool:
        """Whether a layer is within ε, or equal up to rounding."""
        if eps >= self.floor:
            return candidate.error <= eps
        if not candidate.error <= self._noise:
            return False
        with np.errstate(invalid="ignore", over="ignore"):
            change = np.abs(candidate.layer(self.samples) - self._reference)
        return bool(np.all(change <= self._rounding))

    def _dependent(self) -> bool:
        """Whether the others could make up for some neuron, up to rounding.

        Refitted without neuron i the layer's error is ‖V_i‖ / √[K⁻¹]_ii. More neurons than there
        are products of inputs are never independent.
        """
        width = self.layer.inputs + 1
        if self.layer.neurons >= width * (width + 1) // 2:
            return True
        scale = kernel_scale(self.rows)
        inverse = np.linalg.inv(ridged_gram(self.rows, scale))
        alone = np.linalg.norm(self.layer.outgoing, axis=0) * scale
        return bool(np.any(alone <= self.allowed(0.0) * np.sqrt(np.abs(np.diag(inverse)))))

    def _from_basis(self) -> Reduced | None:
        """The shortest prefix of the pivoted basis that is equal up to rounding."""
        shortest = int(np.argmax(self._basis.errors <= self.allowed(0.0)))
        tried = range(max(shortest, 1), self.layer.neurons)

        def equal(count: int) -> bool:
            return self.accepts(self._basis_candidate(count), 0.0)

        at = 0
        if tried and not equal(tried[0]):
            at = bisect.bisect_left(tried, True, lo=1, key=equal)
        return self._basis_candidate(tried[at]) if at < len(tried) else self._without_constants()

    def _without_constants(self) -> Reduced | None:
        """What is left when only dead and constant neurons go."""
        size = self.layer.neurons
        if size == self.original.neurons:
            return None
        blocks = tuple((i,) for i in range(size))
        return self._built(self.layer.incoming, self.rows, blocks)

    def _basis_candidate(self, count: int) -> Reduced:
        kept, blocks = self._basis.cut(count)
        return self._built(self.layer.incoming[kept], self.rows[kept], blocks, exact=True)

    def _from_tree(self, eps: float, limit: int) -> Reduced | None:
        """The fewest blocks of the merge tree, below `limit`, that are acceptable.

        The error along the tree is only nearly monotone: bisection finds a count, and those just
        below it are tried as well (all of them when there are few). Both are monotone in ε.
        """
        allowed = self.allowed(eps)
        tried = range(1, limit)
        at = bisect.bisect_left(tried, True, key=lambda k: self._tree_error(k) <= allowed)
        for count in range(at + 1 - WINDOW if at >= FULL_SCAN else 1, limit):
            if self._tree_error(count) <= allowed:
                candidate = self.candidate(count)
                if self.accepts(candidate, eps):
                    return candidate
        return None

    def candidate(self, count: int) -> Reduced:
        """The quotient by the tree's partition into `count` blocks."""
        nodes, blocks = self.tree.cut(count)
        incoming = self.metric.unwhiten(nodes)
        for i, block in enumerate(blocks):
            if len(block) == 1:
                incoming[i], nodes[i] = self.layer.incoming[block[0]], self.rows[block[0]]
        return self._built(incoming, nodes, blocks)

    def _built(
        self, incoming: FloatArray, rows: FloatArray, blocks: Blocks, exact: bool = False
    ) -> Reduced:
        """The quotient with these neurons, as it will read back from the file."""
        fitted = Layer(incoming, self._projected(rows, blocks), self.layer.offset)
        if self.refitted and len(blocks) < self.layer.neurons:
            fitted = refit(self.layer, fitted, self.metric, self.roundoff if exact else None)
        _, order = self._canonical
        named = tuple(tuple(sorted(int(order[i]) for i in block)) for block in blocks)
        return self.stored(fitted, named)

    def stored(self, layer: Layer, blocks: Blocks) -> Reduced:
        """A layer as it reads back after being balanced and stored."""
        stored = balanced(layer, self.original, self.metric).stored_as(self.dtype)
        return Reduced(stored, blocks, self.metric.relative_error(self.layer, stored))

    def _projected(self, rows: FloatArray, blocks: Blocks) -> FloatArray:
        """Outgoing weights of each block: its members' squares projected on its row's square."""
        home = np.empty(self.layer.neurons, dtype=np.intp)
        for i, block in enumerate(blocks):
            home[list(block)] = i
        length = squared(rows)[home]
        along = np.einsum("ij,ij->i", self.rows, rows[home]) / np.where(length == 0, 1.0, length)
        outgoing = np.zeros((len(blocks), self.layer.outputs))
        np.add.at(outgoing, home, (self.layer.outgoing * along**2).T)
        return outgoing.T

    def _tree_error(self, count: int) -> float:
        """The estimated error of `count` blocks of the tree, remembered for the next ε."""
        if count not in self._tree_errors:
            self._tree_errors[count] = self._measured_tree_error(count)
        return self._tree_errors[count]

    @cached_property
    def _tree_errors(self) -> dict[int, float]:
        return {}

    def _measured_tree_error(self, count: int) -> float:
        """From Gram matrices alone: the residual of least squares, or of the projection."""
        rows, blocks = self.tree.cut(count)
        if not self.refitted:
            change = np.hstack([self.layer.outgoing, -self._projected(rows, blocks)])
            return norm(np.vstack([self.rows, rows]), change)
        scale = kernel_scale(rows)
        target = self.layer.outgoing @ kernel(self.rows, rows) / scale
        explained = np.sum(target * np.linalg.solve(ridged_gram(rows, scale), target.T).T)
        return float(np.sqrt(max(self.total**2 - explained, 0.0)))


def constant_layer(layer: Layer, dtype: npt.DTypeLike) -> Reduced | None:
    """A layer that ignores its input needs one neuron, of zeros."""
    if layer.neurons == 1:
        return None
    nothing = np.zeros((1, layer.inputs + 1))
    offset = layer.without_constants().offset
    stored = Layer(nothing, np.zeros((layer.outputs, 1)), offset).stored_as(dtype)
    return Reduced(stored, (tuple(range(layer.neurons)),), 0.0)
