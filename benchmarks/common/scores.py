"""How good a network is, and how small: test errors, the quadratic limit, and GRP."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from benchmarks.common.datasets import Rows
from onnxfde.graph.size import count_parameters
from onnxfde.graph.tensors import FLOATS, keyed_tensors, to_array
from onnxfde.numbers import Array


def outputs_of(model: onnx.ModelProto, x: Array, names: Sequence[str] | None = None) -> list[Array]:
    """The outputs of a model with one input in onnxruntime: all of them, or those named."""
    from onnxruntime import InferenceSession

    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(y) for y in session.run(names, {session.get_inputs()[0].name: x})]


def score(output: Array, target: Array) -> float:
    """Accuracy for labels, the mean squared error for numbers."""
    if target.ndim == 1:
        return float(np.mean(output.argmax(axis=1) == target))
    return float(np.mean((output.astype(np.float64) - target) ** 2))


def on_test_rows(model: onnx.ModelProto, rows: Rows) -> float:
    """The score of a model with one output on the test rows."""
    (output,) = outputs_of(model, rows.x_test)
    return score(output, rows.y_test)


def quadratic_limit(rows: Rows) -> float:
    """The test error of the least-squares quadratic of the training rows.

    No network with one square layer fits the training rows better.
    """
    best, *_ = np.linalg.lstsq(quadratic(rows.x_train), rows.y_train.astype(np.float64), rcond=None)
    return score(quadratic(rows.x_test) @ best, rows.y_test)


def quadratic(x: Array) -> Array:
    """All monomials of degree at most 2, one column for each."""
    z = np.hstack([x.astype(np.float64), np.ones((len(x), 1))])
    i, j = np.triu_indices(z.shape[1])
    return np.asarray(z[:, i] * z[:, j])


def grp_percent(model: onnx.ModelProto, original: onnx.ModelProto) -> float:
    """GRP: remaining nonzero parameters, in percent of all parameters of the original."""
    known = dict(keyed_tensors(original))
    changed = (t for key, t in keyed_tensors(model) if t.dims and known.get(key) != t)
    zeros = sum(int(np.sum(to_array(t, None) == 0)) for t in changed if t.data_type in FLOATS)
    return 100 * (count_parameters(model) - zeros) / count_parameters(original)
