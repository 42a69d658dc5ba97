"""The range of a layer of squares over a box of inputs, and how far another layer can be from it.

    o = c + Σ_i V_i (u_i·z)² = c + zᵀQz,   z = (x, 1),  x = m + r·t,  t ∈ [−1, 1]ᵈ
    o ∈ const ± Σ_{j≠l} |r_j Q_jl r_l| + Σ_j range of q_j t² + l_j t      (exact in each variable)
    o′(x + δ) − o(x) = zᵀ(Q′ − Q)z + 2 zᵀQ′δ + δᵀQ′δ,   δ = e + s·τ       (the same in t and τ)

The bounds hold for the stored weights in exact arithmetic. To cover the rounding of float64 they
are widened by γ_k·(|V|(|U||z|)² + |c|) for each layer, where k = n + 5 + twice the roundings that
made U + those that made V, and by γ_{3d+23}·(the forms in t and τ on absolute values).

If writing out all Q takes more than `MOST_FORM_WORK` operations, or a single Q has more than
`MOST_FORM_ENTRIES` entries, the off-diagonal part A of Q′ − Q is bounded without writing it out:

    |Σ_{j≠l} A_jl t_j t_l| ≤ √(d(d−1))·‖A − diag A‖_F,   ‖A‖_F² = Σ_ij V_i V_j (a_i·a_j)²

That is √(π/2) ≈ 1.25 times larger if the entries of A look Gaussian, and cannot resolve changes
below 1e-6 of |V|(|U||z|)². Layers too large even for that are subtracted as intervals.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from onnxfde.neurons.intervals import Interval, gamma
from onnxfde.numbers import FloatArray
from onnxfde.proof.affine_bounds import OUTWARD, Squares, layer_magnitude, layer_range, layer_shift

MOST_FORM_WORK = 6e10
"""Operations that writing out and bounding all Q may take: six seconds at 1e10 per second. Chosen;
not tuned."""
MOST_GRAM_WORK = 6e11
"""Multiplications that the Frobenius norms may take: a minute at 1e10 per second. Chosen; not
tuned."""
MOST_CHUNK_ENTRIES = 4_000_000
"""Entries of an array that is worked on at once, 32 MB in float64. Chosen; not tuned."""
MOST_FORM_ENTRIES = 20_000_000
"""Entries of a single Q, 160 MB in float64, of which several copies are held. Chosen; not tuned."""
FORM_PASSES = 20
"""Operations per entry of Q and row of inputs, besides writing Q out. Estimated from `Centred`."""


def layer_change(
    before: Squares, after: Squares, x: Interval, shift: Interval, same: bool = False
) -> tuple[Interval, Interval]:
    """The range of a layer over rows of intervals, and of its change: o′(x + δ) − o(x)."""
    value = layer_range(before, x)
    inputs, outputs = before[0].weight.shape[1], len(before[1].weight)
    both = len(before[0].weight) + len(after[0].weight)
    neurons = len(before[0].weight) if same else both
    exact = form_work(inputs, neurons, outputs, len(x.low)) <= MOST_FORM_WORK
    if same and shift.is_zero:
        zero = Interval.point(np.zeros(value.shape))
        return (value.meet(form_range(before, x)) if exact else value), zero
    if exact:
        closer, change = joint_change(before, after, x, shift, same)
        return value.meet(closer), change
    change = layer_shift(after, x, shift)
    if not same and gram_work(inputs, both, outputs) <= MOST_GRAM_WORK:
        change = change + gram_change(before, after, x)
    elif not same:
        change = change + (layer_range(after, x) - value)
    return value, change


def form_work(inputs: int, neurons: int, outputs: int, rows: int = 1) -> float:
    """Operations to write out and bound the forms of layers; infinite if they are too large."""
    if (inputs + 1) ** 2 > MOST_FORM_ENTRIES:
        return np.inf
    return float(outputs * (neurons + FORM_PASSES * rows) * (inputs + 1) ** 2)


def gram_work(inputs: int, neurons: int, outputs: int) -> float:
    """Multiplications for the Gram matrix of all neurons of two layers."""
    return float(neurons**2 * (inputs + outputs))


def roundings(layer: Squares) -> int:
    """Roundings in an entry of Q, including one for subtracting it from another."""
    first, second = layer
    return 2 * first.steps + second.steps + len(first.weight) + 5


def margin(layer: Squares, x: FloatArray) -> FloatArray:
    """What the rounding of Q can add to zᵀQz."""
    return np.asarray(gamma(roundings(layer)) * OUTWARD * layer_magnitude(layer, x))


def moved_margin(layer: Squares, x: FloatArray, shift: FloatArray) -> FloatArray:
    """What the rounding of Q can add to 2zᵀQδ + δᵀQδ."""
    first, second = layer
    extra = shift @ first.size[0].T
    most = (extra * (2 * first.magnitude(x) + extra)) @ second.size[0].T
    return np.asarray(gamma(roundings(layer)) * OUTWARD * most)


def output_chunks(layers: tuple[Squares, ...], rows: int) -> Iterator[slice]:
    """Slices of the outputs that are few enough for their forms to fit into little memory."""
    width = layers[0][0].weight.shape[1] + 1
    longest = max(width, rows, *(len(first.weight) for first, _ in layers))
    outputs, step = len(layers[0][1].weight), max(1, MOST_CHUNK_ENTRIES // (width * longest))
    yield from (slice(i, i + step) for i in range(0, outputs, step))


def quadratic_forms(layer: Squares, part: slice) -> FloatArray:
    """Q of some of the outputs, with c added in the corner."""
    first, second = layer
    rows = np.column_stack([first.weight, first.bias])
    weight = second.weight[part]
    weighted = (weight[:, None, :] * rows.T).reshape(len(weight) * rows.shape[1], len(rows))
    q = (weighted @ rows).reshape(len(weight), rows.shape[1], rows.shape[1])
    q[:, -1, -1] += second.bias[part]
    return np.asarray(q)


def form_range(layer: Squares, x: Interval) -> Interval:
    """The range of a layer, from its quadratic forms."""
    found = [
        Centred(quadratic_forms(layer, p), x).range() for p in output_chunks((layer,), len(x.low))
    ]
    return gathered(found).widened(margin(layer, x.size))


def joint_change(
    before: Squares, after: Squares, x: Interval, shift: Interval, same: bool
) -> tuple[Interval, Interval]:
    """The range of a layer and of its change, the latter from a form in x and δ together."""
    own = margin(before, x.size)
    rounding = moved_margin(after, x.size, shift.size)
    if not same:
        rounding = rounding + own + margin(after, x.size)
    values, changes = [], []
    for part in output_chunks((before,) if same else (before, after), len(x.low)):
        old = quadratic_forms(before, part)
        values.append(Centred(old, x).range())
        new = old if same else quadratic_forms(after, part)
        centred = Centred(np.zeros_like(old) if same else new - old, x)
        changes.append((centred if shift.is_zero else centred.moved(new, x, shift)).range())
    return gathered(values).widened(own), gathered(changes).widened(rounding)


def gathered(parts: list[Interval]) -> Interval:
    """Arrays of outputs by rows (k × P each), joined into one array of rows by outputs."""
    low, high = np.concatenate([p.low for p in parts]), np.concatenate([p.high for p in parts])
    return Interval(np.ascontiguousarray(low.T), np.ascontiguousarray(high.T))


class Centred:
    """Quadratic forms in t ∈ [−1, 1]ᵈ (and τ): k forms over P boxes.

    `constant`, `rest` (the sum of the off-diagonal terms) and `size` (all terms on absolute values,
    for the rounding) are k × P; `slope` and `curve` are the terms in t_j and t_j², and `single`
    holds the ranges of the terms in each τ_j.
    """

    def __init__(self, q: FloatArray, x: Interval) -> None:
        """zᵀqz over the boxes of x."""
        mid, rad = x.mid, x.rad
        a, b = q[:, :-1, :-1], q[:, :-1, -1]
        half = mid @ a.transpose(0, 2, 1)
        self.constant = q[:, -1, -1, None] + np.einsum("pd,kpd->kp", mid, half + 2 * b[:, None])
        self.slope = 2 * rad * (half + b[:, None])
        self.curve = diagonal(a)[:, None] * rad**2
        self.rest = off_diagonal(a, rad)
        self.single: list[Interval] = []
        z = np.column_stack([np.abs(mid) + rad, np.ones(len(mid))])
        self.size = np.einsum("pd,kpd->kp", z, z @ np.abs(q))
        self.steps = 3 * q.shape[-1] + 20

    def moved(self, q: FloatArray, x: Interval, shift: Interval) -> Centred:
        """These forms plus 2zᵀqδ + δᵀqδ."""
        mid, rad, e, s = x.mid, x.rad, shift.mid, shift.rad
        a, b = q[:, :-1, :-1], q[:, :-1, -1]
        absolute, turned = np.abs(a), a.transpose(0, 2, 1)
        at_mid, at_shift = mid @ turned + b[:, None], e @ turned
        self.constant = self.constant + np.einsum("pd,kpd->kp", e, 2 * at_mid + at_shift)
        self.slope = self.slope + 2 * rad * at_shift
        self.single.append(term_range(diagonal(a)[:, None] * s**2, 2 * s * (at_mid + at_shift)))
        self.rest = self.rest + off_diagonal(a, s) + 2 * np.einsum("pd,kpd->kp", rad, s @ absolute)
        size, most = np.abs(mid) + rad, np.abs(e) + s
        inner = 2 * (size @ absolute + np.abs(b)[:, None]) + most @ absolute
        self.size = self.size + np.einsum("pd,kpd->kp", most, inner)
        return self

    def range(self) -> Interval:
        """The range of the forms, k × P."""
        terms = [*self.single, term_range(self.curve, self.slope)]
        low = self.constant - self.rest + sum(t.low.sum(axis=-1) for t in terms)
        high = self.constant + self.rest + sum(t.high.sum(axis=-1) for t in terms)
        return Interval(low, high).widened(gamma(self.steps) * OUTWARD * self.size)


def diagonal(a: FloatArray) -> FloatArray:
    """The diagonals of matrices."""
    return np.asarray(np.einsum("kdd->kd", a))


def off_diagonal(a: FloatArray, rad: FloatArray) -> FloatArray:
    """Σ_{j≠l} r_j |a_jl| r_l."""
    absolute = np.abs(a)
    np.einsum("kdd->kd", absolute)[:] = 0.0
    return np.asarray(np.einsum("pd,kpd->kp", rad, rad @ absolute))


def term_range(q: FloatArray, slope: FloatArray) -> Interval:
    """The exact range of q t² + l t over [−1, 1]."""
    steep = np.abs(slope)
    inside = steep < 2 * np.abs(q)
    vertex = np.divide(-(slope**2), 4 * q, out=np.zeros_like(q), where=inside)
    low = np.where(inside & (q > 0), vertex, q - steep)
    return Interval(low, np.where(inside & (q < 0), vertex, q + steep))


def gram_change(before: Squares, after: Squares, x: Interval) -> Interval:
    """The range of o′(x) − o(x) over the hull of all rows, by the Frobenius norm."""
    hull = Interval(x.low.min(axis=0, keepdims=True), x.high.max(axis=0, keepdims=True))
    mid, rad = hull.mid, hull.rad
    rows = np.vstack([first.weight for first, _ in (before, after)])
    at_mid = rows @ mid[0] + np.concatenate([first.bias for first, _ in (before, after)])
    weight = np.hstack([-before[1].weight, after[1].weight])
    rows *= rad
    constant = weight @ at_mid**2 + (after[1].bias - before[1].bias)
    slope, curve = 2 * (weight * at_mid) @ rows, weight @ rows**2
    terms, (count, width) = term_range(curve, slope), rows.shape
    found = Interval(constant + terms.low.sum(axis=1), constant + terms.high.sum(axis=1))
    lengths = np.abs(weight) @ np.einsum("ij,ij->i", rows, rows)
    rest = frobenius(weight, rows) - np.einsum("kj,kj->k", curve, curve)
    rest = np.maximum(rest, 0.0) + gamma(4 * (width + count) + 20) * OUTWARD * lengths**2
    steps = max(roundings(before), roundings(after)) + count + 4 * width + 20
    rounding = layer_magnitude(before, hull.size) + layer_magnitude(after, hull.size)
    spread = np.sqrt(rest * width * (width - 1)) * OUTWARD
    return found.widened(spread + gamma(steps) * OUTWARD * rounding[0])


def frobenius(weight: FloatArray, rows: FloatArray) -> FloatArray:
    """Σ_ij V_ki V_kj (a_i·a_j)² for each k, block by block."""
    step = max(1, MOST_CHUNK_ENTRIES // len(rows))
    total = np.zeros(len(weight))
    for i in range(0, len(rows), step):
        gram = (rows[i : i + step] @ rows.T) ** 2
        total += np.einsum("ki,ik->k", weight[:, i : i + step], gram @ weight.T)
    return total
