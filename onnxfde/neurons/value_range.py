"""Whether the values of a layer fit the type they are stored in, and float64, in which we compute.

    in the stored type   t = U z,  h = σ(t),  o = c + V h     on sample inputs
    in float64           K_ii  and  ‖V_i‖² K_ii               of whitened neurons (`kernels`)

Where one of them is too large for its type, or so small that it is lost, nothing can be promised
about a smaller layer. Each function returns the reason, or None if all is well.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxfde.neurons.layer import Layer
from onnxfde.neurons.quadratics import Quadratic, spelled_layer, spelled_magnitude
from onnxfde.neurons.unit_kernels import SQUARES, Kernel
from onnxfde.numbers import ROUNDING_STEPS, ROUNDOFF, FloatArray, cast

MOST_LOST = 0.01
"""The largest share of the spread of a layer's outputs that underflow may take. Chosen: a tenth of
the default ε; not tuned."""
MOST_CHECKED = 2**22
"""Hidden values and outputs that are looked at, 32 MB of float64; in very wide layers these are on
some of the samples only. Chosen; not tuned."""
CHECK_PRODUCTS = 2**27
"""Multiplications for each of the three evaluations on these samples, about 10 ms on one core.
Chosen; not tuned."""
LARGEST_SIZE = 2.0**200
"""Sizes of neurons and square roots of sizes of outputs may lie between this and its inverse:
their fourth powers, summed over neurons, then stay within float64 (2^±1022)."""
LARGEST_WEIGHT = 2.0**480
"""The largest weight whose square, summed over a layer, stays within float64."""


@np.errstate(over="ignore", invalid="ignore")
def storage_fault(
    layer: Layer, x: FloatArray, dtype: np.dtype[Any], p: Quadratic | None = None
) -> str | None:
    """Why the stored type cannot hold a layer's values on these inputs.

    If `p` is given, the layer is the completed square of one that is written with it.
    """
    if not layer.finite:
        return f"its weights overflow {dtype.name}"
    values, products = layer.neurons + layer.outputs, layer.incoming.size + layer.outgoing.size
    x = x[:: max(1, len(x) * values // MOST_CHECKED, len(x) * products // CHECK_PRODUCTS)]
    found = rounded_outputs(layer, x, dtype, p)
    overflows = np.count_nonzero(~np.isfinite(found).all(axis=1))
    if overflows:
        return f"its values overflow {dtype.name} on {overflows} of {len(x)} sample inputs"
    exact = layer(x)
    size = layer.magnitude(x) if p is None else spelled_magnitude(layer, p, x)
    lost = np.abs(found - exact) - ROUNDING_STEPS * ROUNDOFF[dtype.name] * size
    spread = np.linalg.norm(exact - exact.mean(axis=0))
    if np.linalg.norm(np.maximum(lost, 0.0)) > MOST_LOST * spread:
        return f"its values are so small that {dtype.name} loses them"
    return None


@np.errstate(over="ignore", invalid="ignore")
def rounded_outputs(
    layer: Layer, x: FloatArray, dtype: np.dtype[Any], p: Quadratic | None
) -> FloatArray:
    """The layer's outputs if inputs and the result of each step are rounded to a type."""
    written, value = (layer, layer.activation.value) if p is None else (spelled_layer(layer, p), p)
    sums = cast(x, dtype) @ written.incoming[:, :-1].T + written.incoming[:, -1]
    hidden = cast(value(cast(sums, dtype), *written.unit_parameters), dtype)
    return cast(hidden @ written.outgoing.T + written.offset, dtype)


@np.errstate(over="ignore", invalid="ignore")
def kernel_fault(
    layer: Layer, rows: FloatArray, outgoing: FloatArray, kernel: Kernel = SQUARES
) -> str | None:
    """Why float64 cannot compare the neurons of a layer, given its live ones, whitened."""
    if not len(rows):
        return None
    weights = max(np.abs(a).max(initial=0.0) for a in (layer.incoming, layer.outgoing))
    sizes = np.linalg.norm(rows, axis=1).max()
    parts = np.sqrt(np.linalg.norm(outgoing, axis=0) * np.sqrt(kernel.variances(rows))).max()
    if not (weights <= LARGEST_WEIGHT and max(sizes, parts) <= LARGEST_SIZE):
        return "its weights or inputs are too large to be squared in float64"
    if min(np.linalg.norm(rows[:, :-1], axis=1).max(), parts) < 1 / LARGEST_SIZE:
        return "its weights or inputs are too small to be squared in float64"
    return None
