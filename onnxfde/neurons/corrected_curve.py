"""A curve of errors by count, corrected by the errors that some counts were found to have.

    ê(k) = e(m(k))        e(m(kⱼ)) = the error found with kⱼ units,  m(0) = 0,  m(n) = n,
                          m never falls, and is smooth in between (Fritsch–Carlson)

A better method than the one that a curve was made with needs fewer units for the same error: k of
them do as well as m(k) by the curve. Factors of errors would not do: where k is more than enough,
the error found is rounding, and says nothing of the errors of fewer units.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnxfde.numbers import FloatArray


def equivalent_counts(errors: FloatArray, found: Mapping[int, float]) -> FloatArray:
    """m(0), m(1), m(2) …: as how many units by the curve so many units do.

    `errors` are those of 0, 1, 2 … units, and never rise; `found` has errors by counts.

    >>> equivalent_counts(np.array([1.0, 0.6, 0.3, 0.1, 0.0]), {2: 0.1}).round(2).tolist()
    [0.0, 1.81, 3.0, 3.69, 4.0]
    """
    from scipy.interpolate import PchipInterpolator

    most = len(errors) - 1
    counts = np.arange(most + 1.0)
    inside = sorted(count for count in found if 0 < count < most)
    equal = np.interp([found[count] for count in inside], errors[::-1], counts[::-1])
    places = np.maximum.accumulate([0.0, *equal, float(most)])
    return np.asarray(PchipInterpolator([0, *inside, most], places)(counts))


def corrected_curve(
    network: FloatArray, local: FloatArray, found: Mapping[int, float]
) -> FloatArray:
    """The errors of the network by counts of a layer, from errors found of the layer itself."""
    counts = np.arange(len(local))
    return np.interp(equivalent_counts(local, found), counts, network)
