"""The only door to onnxruntime; onnx.reference where it cannot run a model.

Telemetry is switched off before the import: onnxruntime would start a thread for it otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxfde.errors import RuntimeUnavailable
from onnxfde.graph import ModelProto, reference_runner
from onnxfde.inputs import Samples

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

Array = npt.NDArray[Any]
Run = Callable[[dict[str, Array]], list[Array]]
LOG_ERRORS_ONLY = 4

ORT_ERRORS = tuple(
    kind
    for kind in vars(ort_errors).values()
    if isinstance(kind, type) and issubclass(kind, Exception)
)


@dataclass(frozen=True)
class Runner:
    """A loaded model and the engine that runs it."""

    run: Run
    engine: str


def load(model: ModelProto, folder: Path | None) -> Runner:
    """Load a model; external weights are looked up in `folder`."""
    try:
        return Runner(onnxruntime_runner(model, folder), "onnxruntime")
    except RuntimeUnavailable as first:
        try:
            return Runner(reference_runner(model, folder), "onnx.reference")
        except RuntimeUnavailable as second:
            raise RuntimeUnavailable(f"{first}; {second}") from None


def onnxruntime_runner(model: ModelProto, folder: Path | None) -> Run:
    """A session on the CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = LOG_ERRORS_ONLY
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if folder is not None:
        key = "session.model_external_initializers_file_folder_path"
        options.add_session_config_entry(key, str(folder.resolve()))
    try:
        raw = model.SerializeToString()
        session = onnxruntime.InferenceSession(raw, options, providers=["CPUExecutionProvider"])
    except ORT_ERRORS as error:
        raise RuntimeUnavailable(f"onnxruntime: {one_line(error)}") from None

    def run(feeds: dict[str, Array]) -> list[Array]:
        try:
            return [np.asarray(a) for a in session.run(None, feeds)]
        except ORT_ERRORS as error:
            raise RuntimeUnavailable(f"onnxruntime: {one_line(error)}") from None

    return run


def one_line(error: BaseException) -> str:
    """The first line of a message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def run_all(
    runner: Runner, samples: Samples, tick: Callable[[], None] = lambda: None
) -> list[Array]:
    """Outputs for all samples, samples on the leading axis."""
    collected: list[list[Array]] = []
    batched = True
    for feeds in samples.feeds():
        outputs = runner.run(feeds)
        rows = {a.shape[0] if a.ndim else 0 for a in feeds.values()}
        batched &= all(a.ndim > 0 and a.shape[0] in rows for a in outputs)
        collected.append(outputs)
        tick()
    join = np.concatenate if batched else np.stack
    return [join(parts) for parts in zip(*collected, strict=True)]
