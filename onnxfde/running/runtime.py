"""The only module that talks to onnxruntime; onnx.reference runs what onnxruntime cannot.

Telemetry is switched off before the import, or onnxruntime would start a thread for it. Loading and
running are limited in memory; `Runner.stop`, called from another thread, ends a run.

8 bits: values are uint8; weights are int8 with one scale per output channel and use only half of
their range. Two products of the full range overflow the 16 bits in which onnxruntime adds them on
x86 without VNNI, and one file would compute different things there and on ARM. (Unsigned weights
would not overflow, but need half as many instructions again on ARM without dot products.) With
static ranges, Mul and the outputs of Gemm and MatMul stay in floating point, so that a square is
not rounded twice.
"""

from __future__ import annotations

import logging
import math
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from onnxfde.errors import DataError, ModelError, RunStopped, RuntimeUnavailable
from onnxfde.graph.files import read_ort
from onnxfde.graph.input_specs import InputSpec
from onnxfde.graph.protos import ModelProto, TensorProto
from onnxfde.graph.reference import REFERENCE_ERRORS, reference_runner
from onnxfde.graph.shapes import ShapeError
from onnxfde.graph.tensors import external_tensors, numpy_dtype
from onnxfde.memory import allowance, limited_memory, thread_stacks
from onnxfde.numbers import Array
from onnxfde.progress import Progress
from onnxfde.running.outputs import Output, output_of, rows_in
from onnxfde.running.samples import Samples
from onnxfde.threads import ALLOWED

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

RunModel = Callable[[dict[str, Array]], list[Any]]
ONNXRUNTIME = "onnxruntime"
LOG_FATAL_ONLY = 4
"""onnxruntime's log level for fatal errors; other errors reach Python as exceptions."""
onnxruntime.set_default_logger_severity(LOG_FATAL_ONLY)
FOR_ONE_PROCESSOR = ["NchwcTransformer"]
"""Optimizations that must not be stored in a file: their operators run on x86 only."""
CONSTANTS_BEFORE_RUNS = ["ConstantFolding"]
"""The optimization that keeps everything computed from weights alone in memory, beside them."""
LARGE_MODEL = 2**28
"""Bytes of weights from which on that optimization is left out: it copied a table of 2 GB twice.
Chosen; not tuned."""
ROUNDED_TO_FLOAT32 = ["MatMulScaleFusion"]
"""Optimizations that put a factor in double precision into a float32 attribute."""
OUT_OF_MEMORY = ("Failed to allocate memory", "bad_alloc", "bad allocation")
"""What onnxruntime's messages say when memory runs out."""
FLOAT_OUTPUT = ["Gemm", "MatMul"]
"""Operators whose outputs stay in floating point in a model quantized with static ranges."""

ORT_ERRORS = tuple(
    kind
    for kind in vars(ort_errors).values()
    if isinstance(kind, type) and issubclass(kind, Exception)
)
RUN_ERRORS: tuple[type[Exception], ...] = (
    *ORT_ERRORS,
    RuntimeError,
    MemoryError,
    TypeError,
    ValueError,
)
"""What onnxruntime raises; the last three come from the door between it and Python."""
QUANTIZER_ERRORS: tuple[type[Exception], ...] = (*REFERENCE_ERRORS, ShapeError, *ORT_ERRORS)


@dataclass(frozen=True)
class Runner:
    """A loaded model and the engine that runs it."""

    run: RunModel
    engine: str
    stop: Callable[[], None] = lambda: None
    """Ends a run, and each later one, with RunStopped; for another thread to call."""


def load(model: ModelProto, folder: Path | None, without: Sequence[str] = ()) -> Runner:
    """Load a model, `without` some optimizations; external weights are looked up in `folder`."""
    try:
        return onnxruntime_runner(model, folder, without)
    except RuntimeUnavailable as first:
        try:
            return onnx_reference_runner(model, folder)
        except RuntimeUnavailable as second:
            raise RuntimeUnavailable(f"{first}; {second}") from None


def onnx_reference_runner(model: ModelProto, folder: Path | None) -> Runner:
    """A model in onnx's reference implementation."""
    stop, room = threading.Event(), allowance(loaded_bytes(model))
    with limited_memory(room):
        evaluate = reference_runner(model, folder, stop)

    def run(feeds: dict[str, Array]) -> list[Any]:
        with limited_memory(room):
            return list(evaluate(feeds))

    return Runner(run, "onnx.reference", stop.set)


def loaded_bytes(model: ModelProto) -> int:
    """Bytes of a model with its external weights, 8 for each number of these."""
    outside = (8 * math.prod(tensor.dims) for tensor in external_tensors(model))
    return int(model.ByteSize()) + sum(outside)


def load_file(file: Path) -> Runner:
    """Load a file in onnxruntime's own format."""
    return started(read_ort(file), session_options(file.parent))


def onnxruntime_runner(
    model: ModelProto, folder: Path | None, without: Sequence[str] = ()
) -> Runner:
    """A session on the CPU, `without` some optimizations."""
    size = loaded_bytes(model)
    if size >= LARGE_MODEL:
        without = [*without, *CONSTANTS_BEFORE_RUNS]
    return started(model.SerializeToString(), session_options(folder), without, size)


def session_options(folder: Path | None = None) -> Any:
    """Options for a session that logs nothing and finds external weights in `folder`."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = LOG_FATAL_ONLY
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if ALLOWED is not None:
        options.intra_op_num_threads = ALLOWED
    if folder is not None:
        key = "session.model_external_initializers_file_folder_path"
        options.add_session_config_entry(key, str(folder.resolve()))
    return options


def started(
    raw: bytes, options: Any, without: Sequence[str] = (), size: int | None = None
) -> Runner:
    """A session for a model in either format, `without` some optimizations.

    `size` counts the bytes of external weights too.
    """
    room = allowance(len(raw) if size is None else size)
    session = started_session(raw, options, room, [*without, *ROUNDED_TO_FLOAT32])
    run_options, types = onnxruntime.RunOptions(), [out.type for out in session.get_outputs()]

    def stop() -> None:
        run_options.terminate = True

    def run(feeds: dict[str, Array]) -> list[Any]:
        try:
            with limited_memory(room):
                found = session.run(None, feeds, run_options)
            return [as_typed(*pair) for pair in zip(found, types, strict=True)]
        except RUN_ERRORS as error:
            if run_options.terminate:
                raise RunStopped("running it took too long") from None
            raise failure(error, room) from None

    return Runner(run, ONNXRUNTIME, stop)


def as_typed(value: Any, kind: str) -> Any:
    """An output of onnxruntime, which gives numbers of 8 bits as their bytes."""
    if kind != "tensor(float8e4m3fn)" or value.dtype != np.uint8:
        return value
    return value.view(numpy_dtype(TensorProto.FLOAT8E4M3FN))


def started_session(model: bytes, options: Any, room: int, without: Sequence[str] = ()) -> Any:
    """A session of onnxruntime; `room` is the memory that it may take.

    The stacks of its threads come on top: if one of them cannot start, onnxruntime may wait for it
    for ever.
    """
    try:
        with limited_memory(room + thread_stacks()):
            return onnxruntime.InferenceSession(
                model,
                options,
                ["CPUExecutionProvider"],
                disabled_optimizers=list(without),
                enable_fallback=0,
            )
    except RUN_ERRORS as error:
        raise failure(error, room) from None


def failure(error: BaseException, room: int) -> RuntimeUnavailable:
    """The error that says why onnxruntime cannot run a model."""
    text = str(error)
    if isinstance(error, MemoryError) or any(sign in text for sign in OUT_OF_MEMORY):
        text = f"it takes more than the {room / 1e9:.1f} GB of memory that it may"
        return RuntimeUnavailable(f"onnxruntime: {text}")
    return RuntimeUnavailable(f"onnxruntime: {one_line(error)}")


def convert(model: ModelProto, folder: Path | None, target: Path) -> tuple[Runner, Runner]:
    """Write a model in onnxruntime's own format; returns the model and the file, both loaded."""
    options = session_options(folder)
    options.optimized_model_filepath = str(target)
    options.add_session_config_entry("session.save_model_format", "ORT")
    size = loaded_bytes(model)
    before = started(model.SerializeToString(), options, FOR_ONE_PROCESSOR, size)
    return before, started(target.read_bytes(), session_options())


def quantized(
    model: ModelProto, feeds: Iterator[dict[str, Array]] | None, without: Sequence[str]
) -> ModelProto:
    """A model in 8 bits, `without` some nodes, which stay as they are.

    The ranges of values are measured on `feeds`; without feeds, each run finds its own.
    """
    from onnxruntime import quantization

    kinds = quantization.QuantType
    common = {
        "per_channel": True,
        "reduce_range": True,
        "weight_type": kinds.QInt8,
        "nodes_to_exclude": list(without),
    }
    with tempfile.TemporaryDirectory(prefix="onnxfde-") as folder, quiet():
        target = Path(folder) / "int8.onnx"
        try:
            if feeds is None:
                quantization.quantize_dynamic(model, target, **common)
            else:
                quantization.quantize_static(
                    model,
                    target,
                    SimpleNamespace(get_next=partial(next, feeds, None)),
                    op_types_to_quantize=quantized_operators(),
                    activation_type=kinds.QUInt8,
                    extra_options={"OpTypesToExcludeOutputQuantization": FLOAT_OUTPUT},
                    **common,
                )
        except QUANTIZER_ERRORS as error:
            raise ModelError(f"onnxruntime cannot quantize the model: {one_line(error)}") from None
        return ModelProto.FromString(target.read_bytes())


def quantized_operators() -> list[str]:
    """All operators that onnxruntime can quantize, except Mul."""
    from onnxruntime.quantization import registry

    return sorted({*registry.QLinearOpsRegistry, *registry.QDQRegistry} - {"Mul"})


@contextmanager
def quiet() -> Iterator[None]:
    """Silence onnxruntime's Python code, which logs to the root logger."""
    root, handler = logging.getLogger(), logging.NullHandler()

    def foreign(record: logging.LogRecord) -> bool:
        return "onnxruntime" not in Path(record.pathname).parts

    root.addHandler(handler)
    root.addFilter(foreign)
    try:
        yield
    finally:
        root.removeFilter(foreign)
        root.removeHandler(handler)


def one_line(error: BaseException) -> str:
    """The first line of a message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def run_all(runner: Runner, samples: Samples, progress: Progress | None = None) -> list[Output]:
    """Outputs of all runs: one row per sample if the model has a batch axis, else one per run."""
    runs, sizes, progress = list[list[Any]](), list[int](), progress or Progress()
    for feeds in samples.feeds():
        runs.append(runner.run(feeds))
        sizes.append(rows_in(feeds))
        progress.at(len(runs), samples.runs)
    return [output_of(parts, sizes, samples.has_batch) for parts in zip(*runs, strict=True)]


def session_interface(file: Path) -> tuple[tuple[InputSpec, ...], list[str]]:
    """The inputs of a file in onnxruntime's own format, and the names of its outputs."""
    raw = read_ort(file)
    session = started_session(raw, session_options(file.parent), allowance(len(raw)))
    found = []
    for value in session.get_inputs():
        lengths = (None if isinstance(d, int) and d < 0 else d for d in value.shape)
        found.append(InputSpec(value.name, numpy_type(value.name, value.type), tuple(lengths)))
    return tuple(found), [value.name for value in session.get_outputs()]


def numpy_type(name: str, text: str) -> np.dtype[Any]:
    """`tensor(float)` as a dtype."""
    if not text.startswith("tensor("):
        raise DataError(f"input '{name}' is not a tensor")
    kind = text.removeprefix("tensor(").removesuffix(")")
    try:
        return np.dtype({"float": "float32", "double": "float64"}.get(kind, kind))
    except TypeError:
        raise DataError(f"input '{name}' holds {kind}, not numbers") from None
