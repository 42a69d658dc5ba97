"""Chains of affine maps with squares between them, and how far another chain can be from one.

    h_1 = F_1 x,  h_{j+1} = F_{j+1}(h_j²),  and the same with F′, which may have fewer neurons

A merged layer does not have the neurons of the original, so h′ cannot be subtracted from h. A link
G_j, an affine map from h_j′² to as many values as h_{j+1} has, makes them comparable: it gives
ĥ_{j+1} = G_j(h_j′²), and with the box of s′ = h_{j−1}′²

    ĥ_{j+1} − h_{j+1} = [F_{j+1}ĥ_j² − F_{j+1}h_j²] + [G_j(F_j′s′)² − F_{j+1}(G_{j−1}s′)²]

Also, for any affine B, with δ = ĥ_j − h_j and the box of the remainder ρ = h_j′ − Bĥ_j,

    ĥ_{j+1} − h_{j+1} = [G_j(B(h_j + δ))² − F_{j+1}h_j²] + [G_j(Bĥ_j + ρ)² − G_j(Bĥ_j)²]

Both hold, so their bounds are intersected. The last link is the last map of F′; any choice of the
others is sound: F_{j+1} if nothing has changed so far, F′_{j+1} if that has as many neurons, and
otherwise a least-squares fit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxfde.neurons.intervals import Interval, Uncertified, gamma, square_change
from onnxfde.neurons.kernels import Metric
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.original_layer import OriginalLayer
from onnxfde.neurons.refit import refit
from onnxfde.numbers import ROUNDOFF, FloatArray
from onnxfde.proof.affine_bounds import OUTWARD, Map, Squares, affine_change, linear
from onnxfde.proof.layer_bounds import layer_change

Maps = tuple[Map, ...]
MOST_ROUTED = 1_000_000
"""Weights of a link up to which B is computed, by least squares. Chosen to bound the time; not
tuned."""


def chain_change(
    before: Maps, after: Maps, same: tuple[bool, ...], x: Interval, shift: Interval
) -> tuple[Interval, Interval]:
    """The range of a chain, and of the change to another one; `same` says which maps are equal."""
    if len(before) == 1:
        return affine_change(before[0], after[0], x, shift, same[0])
    if len(before) == 2:
        return layer_change(layer_of(before, 0), layer_of(after, 0), x, shift, all(same))
    links = Links(before, after, same)
    box = x if shift.is_zero else x + shift
    link = links.after_layer(0, layer_of(before, 0), box)
    equal = same[0] and links.is_original(1, link)
    value, change = layer_change(layer_of(before, 0), (after[0], link), x, shift, equal)
    for j in range(1, len(before) - 1):
        box, last = after[j - 1](box).squared(), link
        old = (last, before[j + 1])
        if not np.isfinite(box.high).all():
            return unbounded(value.shape[0], before[-1]), unbounded(value.shape[0], before[-1])
        link = links.after_layer(j, old, box)
        hidden, delta = value, change
        value, change = after_squares(before[j + 1], hidden, delta)
        if not (links.is_other(j, last) and links.is_original(j + 1, link)):
            nothing = Interval.point(np.zeros(box.shape))
            change = change + layer_change(old, (after[j], link), box, nothing)[1]
            if last.weight.size <= MOST_ROUTED:
                change = change.meet(routed_change(old, (after[j], link), box, hidden, delta))
    return value, change


def unbounded(count: int, last: Map) -> Interval:
    """The range of a last map once the numbers overflow: everything."""
    most = np.full((count, len(last.weight)), np.inf)
    return Interval(-most, most)


def layer_of(maps: Maps, j: int) -> Squares:
    """The layer of maps j and j + 1."""
    return maps[j], maps[j + 1]


def after_squares(f: Map, value: Interval, change: Interval) -> tuple[Interval, Interval]:
    """F(h²) and its change, from h and its change."""
    squared = square_change(value, change)
    rounding = gamma(f.steps) * OUTWARD * (squared.size @ f.size[0].T)
    return f(value.squared()), linear(f.weight, squared).widened(rounding)


def routed_change(
    old: Squares, new: Squares, box: Interval, hidden: Interval, delta: Interval
) -> Interval:
    """The change of a layer that reads squares, by the second equation (B `route`, ρ `rest`)."""
    (link, old_last), (first, new_last) = old, new
    scale = box.rad.max(axis=0)
    known, wanted = (link.weight * scale).T, (first.weight * scale).T
    if not (np.isfinite(known).all() and np.isfinite(wanted).all()):
        raise Uncertified("its bounds overflow")
    solution = np.linalg.lstsq(known, wanted, rcond=None)[0]
    route = Map(np.ascontiguousarray(solution.T), first.bias - solution.T @ link.bias)
    nothing = Interval.point(np.zeros(box.shape))
    rest = affine_change(link.then(route), first, box, nothing, same=False)[1]
    plain = Map(np.eye(len(link.weight)), np.zeros(len(link.weight)))
    change = layer_change((plain, old_last), (route, new_last), hidden, delta)[1]
    return change + after_squares(new_last, route(hidden + delta), rest)[1]


@dataclass(frozen=True, eq=False)
class Links:
    """How the neurons of two chains are compared: the choice of the maps G."""

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
        """The link from the squares of map j of the other chain to map j + 1 of the original."""
        if j + 2 == len(self.before):
            return self.after[-1]
        if all(self.same[: j + 1]):
            return self.before[j + 1]
        if self.after[j + 1].weight.shape[0] == self.before[j + 1].weight.shape[0]:
            return self.after[j + 1]
        return fitted_link(old, self.after[j], box)


def fitted_link(old: Squares, first: Map, box: Interval) -> Map:
    """The map after these neurons that brings them closest to a layer, over a box."""
    hull = Interval(box.low.min(axis=0), box.high.max(axis=0))
    metric = Metric(hull.mid, np.diag(hull.rad / np.sqrt(3)))
    layer = Layer(neuron_rows(old[0]), old[1].weight, old[1].bias)
    zero = np.zeros((len(layer.outgoing), len(first.weight)))
    start = Layer(neuron_rows(first), zero, layer.offset)
    found = refit(OriginalLayer(layer, metric), start, roundoff=ROUNDOFF["float64"])
    return Map(found.outgoing, found.offset)


def neuron_rows(first: Map) -> FloatArray:
    """Neurons as rows u = (w, b)."""
    return np.column_stack([first.weight, first.bias])
