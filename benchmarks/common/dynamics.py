"""Right-hand sides of the simulated systems: states in, one row per state, derivatives out."""

from __future__ import annotations

import numpy as np

from onnxfde.numbers import Array


def glycolysis(s: Array) -> Array:
    """Right-hand side of the 7-species glycolytic oscillator."""
    j0, k1, k2, k3, k4, k5, k6 = 2.5, 100.0, 6.0, 16.0, 100.0, 1.28, 12.0
    k, kappa, q, cap, psi, n, a = 1.8, 13.0, 4, 0.52, 0.1, 1.0, 4.0
    s1, s2, s3, s4, s5, s6, s7 = s.T
    v = k1 * s1 * s6 / (1 + (s6 / cap) ** q)
    return np.stack(
        [
            j0 - v,
            2 * v - k2 * s2 * (n - s5) - k6 * s2 * s5,
            k2 * s2 * (n - s5) - k3 * s3 * (a - s6),
            k3 * s3 * (a - s6) - k4 * s4 * s5 - kappa * (s4 - s7),
            k2 * s2 * (n - s5) - k4 * s4 * s5 - k6 * s2 * s5,
            -2 * v + 2 * k3 * s3 * (a - s6) - k5 * s6,
            psi * kappa * (s4 - s7) - k * s7,
        ],
        axis=1,
    )


def binding(s: Array) -> Array:
    """Right-hand side of the 6-species reaction network: reversible binding at two sites."""
    a, b, c, d, e, f = s.T
    r1, r2 = a * e - 2 * b, a * e - 2 * c
    r3, r4 = b * e - 2 * d, c * e - 2 * d
    r5 = 0.5 * d * e - 0.3 * f
    return np.stack([-r1 - r2, r1 - r3, r2 - r4, r3 + r4 - r5, -r1 - r2 - r3 - r4 - r5, r5], axis=1)


def electrical(v: Array) -> Array:
    """Right-hand side of the H-tree of depth 3: v11, v21, v22, v31 to v34."""
    root, b = 1.1195700850873262, 0.5606494502496796
    second = np.array([0.5233235724597057, 0.5232821916287071])
    third = np.array([0.603301590244999, 0.6033785530926093, 0.603325178373297, 0.6033616699243862])
    v1, v2, v3 = v[:, :1], v[:, 1:3], v[:, 3:]
    top = root * (2 - v1) - b * (2 * v1 - v2.sum(axis=1, keepdims=True))
    return np.hstack([top, second * (v1 - v2), third * (v2[:, [0, 0, 1, 1]] - v3)])


def polymerization(s: Array) -> Array:
    """Mass action of A1, A2, A1p, A2p, A1CHCHp, A2CHCHp, H, H2, C2H2.

    Ai + H ⇌ Aip + H2, Aip + C2H2 ⇌ AiCHCHp, A1CHCHp + C2H2 → A2 + H, A2CHCHp + C2H2 → A1 + H.
    """
    a1, a2, p1, p2, c1, c2, h, h2, acetylene = s.T
    r1 = 1.0001 * a1 * h - 0.1 * p1 * h2
    r2 = 1.0004 * a2 * h - 0.1 * p2 * h2
    q1 = 2.0003 * p1 * acetylene - 0.2 * c1
    q2 = 1.9985 * p2 * acetylene - 0.2 * c2
    g1 = 2.9998 * c1 * acetylene
    g2 = 3.0010 * c2 * acetylene
    return np.stack(
        [
            g2 - r1,
            g1 - r2,
            r1 - q1,
            r2 - q2,
            q1 - g1,
            q2 - g2,
            g1 + g2 - r1 - r2,
            r1 + r2,
            -q1 - q2 - g1 - g2,
        ],
        axis=1,
    )
