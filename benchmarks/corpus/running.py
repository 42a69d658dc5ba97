"""Models run by onnxruntime itself, or onnx.reference where that cannot: none of onnxfde's code.

A model is run on the inputs that came with it, and on random ones: numbers in [−1, 1], the
commands' assumption, integers 0 and 1. Open axes get the first sizes with which the original runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from benchmarks.corpus.cases import Case

Feed = dict[str, Any]
Run = Callable[[Feed], list[Any]]

LOAD_ERRORS = (
    RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError, OSError,
    NotImplementedError, onnx.checker.ValidationError, MemoryError, AssertionError,
    ZeroDivisionError,
)  # fmt: skip
"""What onnx and its reference raise for a model that they cannot run."""
SIZES = ((2048, 8), (1, 8), (1, 1), (8, 32), (1, 64), (1, 512), (1, 16000), (2, 224), (1, 320))
"""Lengths to try for an open leading axis and for other open axes; chosen."""
ROWS = 2048
"""Samples that a model with a fixed batch is run on, as far as `MOST_NUMBERS` allows. Chosen: the
change is then known to about 2 %."""
MOST_NUMBERS = 2**22
"""Most random numbers that a model is run on in all; chosen: 16 MB of float32."""


def binding_errors() -> tuple[type[BaseException], ...]:
    """The exceptions that onnxruntime raises, with those of onnx.reference."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    own = [
        found
        for found in vars(state).values()
        if isinstance(found, type) and issubclass(found, Exception)
    ]
    return (*LOAD_ERRORS, *own)


ERRORS = binding_errors()


def session(path: Path) -> onnxruntime.InferenceSession:
    """A model in onnxruntime, on one thread, silent."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def in_runtime(path: Path) -> Run:
    """How onnxruntime runs a model."""
    loaded = session(path)
    return lambda feed: list(loaded.run(None, feed))


def in_reference(path: Path) -> Run:
    """How onnx's own Python implementation runs a model."""
    evaluator = ReferenceEvaluator(str(path))
    return lambda feed: list(evaluator.run(None, feed))


ENGINES: dict[str, Callable[[Path], Run]] = {
    "onnxruntime": in_runtime,
    "onnx.reference": in_reference,
}


def stored_feeds(case: Case) -> Iterator[Feed]:
    """The inputs that came with a model."""
    graph = onnx.load(case.path, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [info for info in graph.input if info.name not in weights]
    for folder in case.stored:
        if len(files := sorted(folder.glob("input_*.pb"))) > len(inputs):
            inputs = list(graph.input)
        ordered = [folder / f"input_{at}.pb" for at in range(len(files))]
        yield {
            info.name: stored_value(path, info) for info, path in zip(inputs, ordered, strict=False)
        }


def stored_value(path: Path, info: onnx.ValueInfoProto) -> Any:
    """One stored input."""
    data, kind = path.read_bytes(), info.type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def random_feeds(path: Path, sizes: tuple[int, int], seed: int = 0) -> list[Feed]:
    """Random inputs of all tensor inputs; feeds until there are enough rows."""
    graph = onnx.load(path, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [info for info in graph.input if info.name not in weights]
    shapes = {info.name: shape_of(info, sizes) for info in inputs}
    rows = min((shape[0] for shape in shapes.values() if shape), default=1)
    numbers = sum(int(np.prod(shape)) for shape in shapes.values())
    count = max(1, min(ROWS // max(rows, 1), MOST_NUMBERS // max(numbers, 1)))
    rng = np.random.default_rng(seed)
    return [
        {info.name: random_value(rng, info, shapes[info.name]) for info in inputs}
        for _ in range(count)
    ]


def shape_of(info: onnx.ValueInfoProto, sizes: tuple[int, int]) -> tuple[int, ...]:
    """The shape of an input, with open axes filled in."""
    if info.type.WhichOneof("value") != "tensor_type":
        raise ValueError(f"input '{info.name}' is not a tensor: no random inputs")
    dims = info.type.tensor_type.shape.dim
    return tuple(
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else sizes[at > 0]
        for at, dim in enumerate(dims)
    )


def random_value(rng: np.random.Generator, info: onnx.ValueInfoProto, shape: Sequence[int]) -> Any:
    """Numbers in [−1, 1], integers and booleans 0 or 1, strings of one letter."""
    kind = info.type.tensor_type.elem_type
    if kind == onnx.TensorProto.STRING:
        return rng.choice(np.array(["a", "b"], dtype=object), shape)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    if np.issubdtype(dtype, np.integer) or dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(dtype)
    if np.issubdtype(dtype, np.complexfloating):
        return (rng.uniform(-1, 1, shape) + 1j * rng.uniform(-1, 1, shape)).astype(dtype)
    return rng.uniform(-1, 1, shape).astype(dtype)


def is_float(array: np.ndarray[Any, Any]) -> bool:
    """Whether an array holds floating-point numbers, ml_dtypes' included."""
    return array.dtype.kind in "fc" or (
        array.dtype.kind == "V" and hasattr(ml_dtypes, array.dtype.name)
    )


def feeds_that_run(case: Case, run: Run) -> tuple[list[Feed], list[Feed], str]:
    """The stored and the random inputs that the original accepts, and why there are none."""
    stored = [feed for feed in stored_feeds(case) if not refusal(run, feed)]
    reason = ""
    for sizes in SIZES:
        try:
            feeds = random_feeds(case.path, sizes)
        except ERRORS as error:
            return stored, [], str(error)
        reason = refusal(run, feeds[0])
        if not reason:
            return stored, feeds, ""
    return stored, [], reason


def refusal(run: Run, feed: Feed) -> str:
    """Why a model does not run on a feed; empty if it does."""
    try:
        run(feed)
    except ERRORS as error:
        return str(error).strip() or type(error).__name__
    return ""
