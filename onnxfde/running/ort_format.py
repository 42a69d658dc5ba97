"""Models in onnxruntime's own format (.ort), for builds of onnxruntime that cannot read .onnx.

The graph is stored as onnxruntime optimized it, without operators that only one kind of processor
can run. The file is read back and must compute what the model does before it is put in place.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np

from onnxfde.errors import RunStopped, RuntimeUnavailable, VerificationError
from onnxfde.graph.drafts import Draft
from onnxfde.graph.model import Graph
from onnxfde.graph.new_files import NewFiles
from onnxfde.numbers import Array
from onnxfde.running.run_clock import RunClock
from onnxfde.running.runtime import Runner, convert, run_all
from onnxfde.running.samples import Samples

ORT_TOLERANCE = 1e-6
"""Allowed difference of an output, relative to the largest one. Chosen: some float32 roundings of
6e-8 each, since onnxruntime may reorder sums; not tuned."""


def write_ort(new: NewFiles, graph: Graph, samples: Samples | None) -> Draft:
    """Convert a model and compare it on samples, if there are any; returns the draft.

    A model that takes too long to run is written without a comparison.
    """
    made, path = new.new_model(), new.path
    try:
        before, after = convert(graph.model, graph.folder, made.path)
        if samples is not None:
            with suppress(RunStopped):
                require_same(before, after, samples, path)
    except RuntimeUnavailable as reason:
        raise RuntimeUnavailable(f"{path}: write an .onnx file instead ({reason})") from None
    return made


def require_same(before: Runner, after: Runner, samples: Samples, path: Path) -> None:
    """Raise unless both compute the same outputs."""
    clock, outputs = RunClock(), []
    for runner in (before, after):
        with clock.watching(runner.stop, samples.work):
            outputs.append(run_all(runner, samples))
    for old, new in zip(*outputs, strict=True):
        if old.structure != new.structure or not same_outputs(old.values, new.values):
            raise VerificationError(
                f"{path} does not compute what the model does; nothing was written, "
                "write an .onnx file instead"
            )


def same_outputs(old: Array, new: Array) -> bool:
    """Whether numbers agree up to rounding, and anything else exactly."""
    if old.dtype.kind != "f":
        return np.array_equal(old, new)
    allowed = ORT_TOLERANCE * float(np.max(np.abs(old), initial=0.0, where=np.isfinite(old)))
    return np.allclose(new, old, rtol=0, atol=allowed, equal_nan=True)
