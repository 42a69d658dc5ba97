"""Chains of affine maps with squares between them, and how far another chain can be from one.

    h_1 = F_1 x,  h_{j+1} = F_{j+1}(h_j²),  and F′ with other numbers of neurons

Neurons of a merged layer are not those of the original, so h_j′ is compared through a link, any G_j
for which ĥ_{j+1} = G_j(h_j′²) has the neurons of h_{j+1}; then, with s′ = h_{j−1}′² and its box,

    ĥ_{j+1} − h_{j+1} = [F_{j+1}ĥ_j² − F_{j+1}h_j²] + [G_j(F_j′s′)² − F_{j+1}(G_{j−1}s′)²]

and also, with any B for which h_j′ = Bĥ_j + ρ has a small rest ρ, and its box,

    ĥ_{j+1} − h_{j+1} = [G_j(B(h_j + δ))² − F_{j+1}h_j²] + [G_j(Bĥ_j + ρ)² − G_j(Bĥ_j)²]

Both hold. The last link is the last map of F′; any choice of the others is sound. Where nothing
changed so far it is F_{j+1}, where layer j + 1 kept its neurons F′_{j+1}, else what fits best.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxfde.neurons.intervals import Interval, gamma, square_change
from onnxfde.neurons.kernels import Metric
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.refit import refit
from onnxfde.numbers import FloatArray
from onnxfde.proof.affine_bounds import FINAL, Map, Squares, affine_change, linear
from onnxfde.proof.layer_bounds import layer_change

Maps = tuple[Map, ...]
MOST_ROUTED = 1_000_000
"""Least squares of more weights than this would take too long."""


def chain_change(
    before: Maps, after: Maps, same: tuple[bool, ...], x: Interval, shift: Interval
) -> tuple[Interval, Interval]:
    """The range of a chain, and of the change to another one; `same` says which maps are equal."""
    if len(before) == 1:
        return affine_change(before[0], after[0], x, shift, same[0])
    if len(before) == 2:
        return layer_change(pair(before, 0), pair(after, 0), x, shift, all(same))
    links = Links(before, after, same)
    box = x if shift.is_zero else x + shift
    link = links.after_layer(0, pair(before, 0), box)
    equal = same[0] and links.is_original(1, link)
    value, change = layer_change(pair(before, 0), (after[0], link), x, shift, equal)
    for j in range(1, len(before) - 1):
        box, last = after[j - 1](box).squared(), link
        old = (last, before[j + 1])
        if not np.isfinite(box.high).all():
            return everything(value.shape[0], before[-1]), everything(value.shape[0], before[-1])
        link = links.after_layer(j, old, box)
        hidden, delta = value, change
        value, change = behind_squares(before[j + 1], hidden, delta)
        if not (links.is_other(j, last) and links.is_original(j + 1, link)):
            nothing = Interval.point(np.zeros(box.shape))
            change = change + layer_change(old, (after[j], link), box, nothing)[1]
            if last.weight.size <= MOST_ROUTED:
                change = change.meet(routed(old, (after[j], link), box, hidden, delta))
    return value, change


def everything(count: int, last: Map) -> Interval:
    """What is known of rows where the numbers overflow."""
    most = np.full((count, len(last.weight)), np.inf)
    return Interval(-most, most)


def pair(maps: Maps, j: int) -> Squares:
    """The layer behind map j."""
    return maps[j], maps[j + 1]


def behind_squares(f: Map, value: Interval, change: Interval) -> tuple[Interval, Interval]:
    """F(h²) and its change, from h and its change."""
    squared = square_change(value, change)
    rounding = gamma(f.steps) * FINAL * (squared.size @ f.size[0].T)
    return f(value.squared()), linear(f.weight, squared).widened(rounding)


def routed(
    old: Squares, new: Squares, box: Interval, hidden: Interval, delta: Interval
) -> Interval:
    """The change of a layer that reads squares, by way of the original's neurons."""
    (link, behind), (first, last) = old, new
    scale = box.rad.max(axis=0)
    solution = np.linalg.lstsq((link.weight * scale).T, (first.weight * scale).T, rcond=None)[0]
    route = Map(np.ascontiguousarray(solution.T), first.bias - solution.T @ link.bias)
    nothing = Interval.point(np.zeros(box.shape))
    rest = affine_change(link.then(route), first, box, nothing, same=False)[1]
    plain = Map(np.eye(len(link.weight)), np.zeros(len(link.weight)))
    change = layer_change((plain, behind), (route, last), hidden, delta)[1]
    return change + behind_squares(last, route(hidden + delta), rest)[1]


@dataclass(frozen=True, eq=False)
class Links:
    """How the neurons of two chains are compared."""

    before: Maps
    after: Maps
    same: tuple[bool, ...]

    def is_original(self, j: int, link: Map) -> bool:
        """Whether a link is map j of the original chain, exactly."""
        return link is self.before[j] or (link is self.after[j] and self.same[j])

    def is_other(self, j: int, link: Map) -> bool:
        """Whether a link is map j of the other chain, exactly."""
        return link is self.after[j] or (link is self.before[j] and self.same[j])

    def after_layer(self, j: int, old: Squares, box: Interval) -> Map:
        """A link from the squares behind map j of the other chain to map j + 1 of this one."""
        if j + 2 == len(self.before):
            return self.after[-1]
        if all(self.same[: j + 1]):
            return self.before[j + 1]
        if self.after[j + 1].weight.shape[0] == self.before[j + 1].weight.shape[0]:
            return self.after[j + 1]
        return fitted(old, self.after[j], box)


def fitted(old: Squares, first: Map, box: Interval) -> Map:
    """The map behind these neurons that brings them closest to a layer, over a box."""
    hull = Interval(box.low.min(axis=0), box.high.max(axis=0))
    metric = Metric(hull.mid, np.diag(hull.rad / np.sqrt(3)))
    layer = Layer(rows(old[0]), old[1].weight, old[1].bias)
    zero = np.zeros((len(layer.outgoing), len(first.weight)))
    start = Layer(rows(first), zero, layer.offset)
    found = refit(layer, start, metric, roundoff=2.0**-50)
    return Map(found.outgoing, found.offset)


def rows(first: Map) -> FloatArray:
    """Neurons as rows u = (w, b)."""
    return np.column_stack([first.weight, first.bias])
