"""The only door to onnxruntime; onnx.reference where it cannot run a model.

Telemetry is switched off before the import: onnxruntime would start a thread for it otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxfde.errors import RuntimeUnavailable
from onnxfde.graph import ModelProto, reference_runner
from onnxfde.inputs import InputSpec, Samples

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

Array = npt.NDArray[Any]
Run = Callable[[dict[str, Array]], list[Array]]
Tick = Callable[[], None]
LOG_ERRORS_ONLY = 4

ORT_ERRORS = tuple(
    kind
    for kind in vars(ort_errors).values()
    if isinstance(kind, type) and issubclass(kind, Exception)
)


def no_tick() -> None:
    """Hear nothing of a run that is done."""


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


def run_each(runner: Runner, samples: Samples, tick: Tick = no_tick) -> Iterator[list[Array]]:
    """Outputs run by run."""
    for feeds in samples.feeds():
        yield runner.run(feeds)
        tick()


def run_all(runner: Runner, samples: Samples, tick: Tick = no_tick) -> list[Array]:
    """Outputs of all runs: a row a sample where the model has a batch axis, else a row a run."""
    runs = list(run_each(runner, samples, tick))
    sizes = [max((len(a) for a in f.values() if a.ndim), default=0) for f in samples.feeds()]
    return [joined(parts, sizes, samples.has_batch) for parts in zip(*runs, strict=True)]


def joined(parts: Sequence[Array], sizes: list[int], has_batch: bool) -> Array:
    """The outputs of all runs in one array."""
    if has_batch and all(len(a.shape) and len(a) == n for a, n in zip(parts, sizes, strict=True)):
        return np.concatenate(parts)
    if len({a.shape for a in parts}) == 1:
        return np.stack(parts)
    return np.concatenate([a.ravel() for a in parts])


def session_inputs(file: Path) -> tuple[InputSpec, ...]:
    """The inputs of a model file as onnxruntime sees them."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = LOG_ERRORS_ONLY
    try:
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    except ORT_ERRORS as error:
        raise RuntimeUnavailable(f"{file}: onnxruntime: {one_line(error)}") from None
    return tuple(
        InputSpec(value.name, numpy_type(value.type), tuple(value.shape))
        for value in session.get_inputs()
    )


def numpy_type(text: str) -> np.dtype[Any]:
    """`tensor(float)` as a dtype."""
    name = text.removeprefix("tensor(").removesuffix(")")
    return np.dtype({"float": "float32", "double": "float64"}.get(name, name))
