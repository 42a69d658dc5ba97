"""The covariance of two neurons of any activation, and its derivatives (Mehler's formula).

    G_ij = Σ_{k=1..K} c_k(i) c_k(j) ρ^k + t_i t_j Σ_o ω_o ρ^{κ·2^o},     ρ = û_i·û_j

The tails t (`hermite`) are spread over five even powers of ρ, ω_o ∝ 2^{−1.5 o}, so that G is
positive semidefinite and neurons that are almost parallel are told apart. With weights Q

    Σ_i Q_ir ∂G_ir/∂w_r = (I − û_r û_rᵀ) Σ_i D_ir û_i / s_r + (Σ_i Q_ir ∂G_ir/∂s_r) û_r,
    D = Q∘∂G/∂ρ.
"""

from __future__ import annotations

import numpy as np

from onnxfde.neurons.hermite import Expansion
from onnxfde.neurons.kernels import CACHED
from onnxfde.numbers import FloatArray

TAIL_POWER = 22
"""κ: the even number next to 1.3 (K + 1). Taken from prototypes; not tuned."""
TAIL_POWERS = 5
"""How many powers a tail is spread over. Taken from prototypes; not tuned."""
TAIL_SHARES = np.exp2(-1.5 * np.arange(TAIL_POWERS))
TAIL_SHARES /= TAIL_SHARES.sum()


def cosines(a: Expansion, b: Expansion) -> FloatArray:
    """ρ between neurons."""
    found = a.directions @ b.directions.T
    return np.asarray(np.clip(found, -1.0, 1.0, out=found))


def hermite_gram(a: Expansion, b: Expansion, rho: FloatArray | None = None) -> FloatArray:
    """G between neurons, a few rows at a time within the cache."""
    rho = cosines(a, b) if rho is None else rho
    found = np.empty(rho.shape)
    for tile in cached_rows(rho.shape):
        some, out = rho[tile], found[tile]
        out[:] = 0.0
        term = np.empty(out.shape)
        for k in range(a.terms, 0, -1):
            np.multiply.outer(a.coefficients[k, tile], b.coefficients[k], out=term)
            out += term
            out *= some
        if a.tailed:
            out += np.multiply.outer(a.tail[tile], b.tail) * tail_profile(some)
    return found


def hermite_pull(weight: FloatArray, a: Expansion, b: Expansion, rho: FloatArray) -> FloatArray:
    """Σ_i Q_ir ∂G_ir/∂r for the neurons r of `b`; Q is overwritten."""
    sums = np.zeros((b.terms + 1, len(b.lengths)))
    tails = np.zeros(len(b.lengths))
    for tile in cached_rows(rho.shape):
        some, q = rho[tile], weight[tile]
        power = q.copy()
        for k in range(1, a.terms + 1):
            power *= some
            sums[k] += a.coefficients[k, tile] @ power
        slope = cosine_slope(a, b, tile, some)
        if a.tailed:
            tails += a.tail[tile] @ (q * tail_profile(some))
        q *= slope
    shift = np.einsum("kr,kr->r", sums, b.shifts)
    stretch = np.einsum("kr,kr->r", sums, b.stretches)
    if a.tailed:
        tail_shift, tail_stretch = b.tail_slopes
        shift, stretch = shift + tails * tail_shift, stretch + tails * tail_stretch
    turned = weight.T @ a.directions
    along = np.einsum("rj,rj->r", turned, b.directions)
    turned -= along[:, None] * b.directions
    found = b.row_slopes(shift, stretch)
    found[:, : turned.shape[1]] += turned / b.lengths[:, None]
    return found


def cosine_slope(a: Expansion, b: Expansion, tile: slice, rho: FloatArray) -> FloatArray:
    """∂G/∂ρ of some rows."""
    slope, term = np.zeros(rho.shape), np.empty(rho.shape)
    for k in range(a.terms, 0, -1):
        slope *= rho
        np.multiply.outer(k * a.coefficients[k, tile], b.coefficients[k], out=term)
        slope += term
    if a.tailed:
        slope += np.multiply.outer(a.tail[tile], b.tail) * tail_slope(rho)
    return slope


def tail_profile(rho: FloatArray) -> FloatArray:
    """Σ_o ω_o ρ^{κ·2^o}."""
    power = first_tail_power(rho)
    found: FloatArray = TAIL_SHARES[0] * power
    for share in TAIL_SHARES[1:]:
        power *= power
        found += share * power
    return found


def tail_slope(rho: FloatArray) -> FloatArray:
    """∂/∂ρ of the same: each power divided by ρ."""
    power = first_tail_power(rho)
    found, degree = np.asarray(TAIL_SHARES[0] * TAIL_POWER * power), TAIL_POWER
    for share in TAIL_SHARES[1:]:
        power *= power
        degree *= 2
        found += share * degree * power
    return np.asarray(np.divide(found, rho, out=np.zeros_like(found), where=rho != 0))


def first_tail_power(rho: FloatArray) -> FloatArray:
    """ρ^22 = ρ^16 ρ^4 ρ^2."""
    second = rho * rho
    fourth = second * second
    found = fourth * fourth
    found *= found
    found *= fourth
    found *= second
    return found


def cached_rows(shape: tuple[int, ...]) -> list[slice]:
    """Pieces of the rows of a matrix that fit in the cache."""
    step = max(1, CACHED // max(shape[1], 1))
    return [slice(at, min(at + step, shape[0])) for at in range(0, shape[0], step)]
