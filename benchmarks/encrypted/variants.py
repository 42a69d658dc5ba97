"""The same network made smaller in several ways, each kept as a file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx

import onnxfde
from benchmarks.encrypted.subjects import EncryptedSubject

ORIGINAL, LOSSLESS, QUARTER, PRUNED = "original", "no loss", "25 % of the neurons", "pruned"
MERGED: dict[str, dict[str, float]] = {
    LOSSLESS: {"eps": 0.0},
    "ε 0.05": {"eps": 0.05},
    "ε 0.1": {"eps": 0.1},
    QUARTER: {"keep": 0.25},
}
"""Options of `onnxfde.optimize`, beside the data."""
VARIANTS = (ORIGINAL, *MERGED, PRUNED)


def variants_of(subject: EncryptedSubject, folder: Path) -> dict[str, Path]:
    """All variants that differ from those before them; a lossless one often is the original."""
    every = {ORIGINAL: subject.model}
    for name, options in MERGED.items():
        every[name] = kept(folder, subject, name, partial(merged, subject, options))
    found: dict[str, Path] = {}
    for name, path in every.items():
        if widths(onnx.load(path)) not in [widths(onnx.load(p)) for p in found.values()]:
            found[name] = path
    quarter = onnx.load(every[QUARTER])
    return {**found, PRUNED: kept(folder, subject, PRUNED, partial(pruned, subject, quarter))}


def kept(
    folder: Path, subject: EncryptedSubject, name: str, make: Callable[[], onnx.ModelProto]
) -> Path:
    """The file of a variant, made now if it is missing."""
    path = folder / f"{subject.name} {name}.onnx".replace(" ", "-").replace("%", "percent")
    if not path.exists():
        onnx.save(make(), path)
    return path


def merged(subject: EncryptedSubject, options: dict[str, float]) -> onnx.ModelProto:
    """What onnxfde leaves, fitted to unlabelled rows."""
    return onnxfde.optimize(subject.model, data=subject.known, verify=False, **options).model  # type: ignore[arg-type]


def matrices(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """The weights of all maps."""
    return [tensor for tensor in model.graph.initializer if len(tensor.dims) == 2]


def widths(model: onnx.ModelProto) -> list[tuple[int, ...]]:
    """The shapes of all maps."""
    return [tuple(tensor.dims) for tensor in matrices(model)]


def pruned(subject: EncryptedSubject, smaller: onnx.ModelProto) -> onnx.ModelProto:
    """The largest weights of each map, as many in all as a smaller model has; the rest is 0."""
    model = onnx.load(subject.model)
    left = sum(np.prod(shape) for shape in widths(smaller))
    share = left / sum(np.prod(shape) for shape in widths(model))
    for tensor in matrices(model):
        values = onnx.numpy_helper.to_array(tensor).copy()
        values[np.abs(values) < np.quantile(np.abs(values), 1 - share)] = 0
        tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    return model
