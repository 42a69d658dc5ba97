"""`bench`: models → shapes and inputs → one job → measured on each target → ratios."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any

from onnxfde.data_use import DataUse, as_texts
from onnxfde.errors import DataError, OnnxfdeError, OptionError, TargetError, UsageError
from onnxfde.graph import files
from onnxfde.graph.cost import multiply_adds, stored_weights
from onnxfde.graph.external_data import locate
from onnxfde.graph.input_specs import input_specs
from onnxfde.graph.protos import ModelProto
from onnxfde.graph.shapes import Dims
from onnxfde.graph.tensors import outside_tensors
from onnxfde.limits import is_number
from onnxfde.machines.results import Comparison, ModelResult, ModelSize, TargetResult, model_result
from onnxfde.machines.shapes import Shapes, Specs, batch_sizes, feed_for, fixed_specs
from onnxfde.machines.targets.base import (
    BenchTarget,
    Case,
    Job,
    MeasuredJob,
    MeasuredModel,
    parse_target,
)
from onnxfde.machines.targets.cpu import Cpu
from onnxfde.numbers import Array, Data
from onnxfde.options import DEFAULT_RANGE, Range
from onnxfde.progress import Progress
from onnxfde.running.open_files import Model, open_model, refuse_senseless, samples_of
from onnxfde.running.random_inputs import check_range

UsedData = tuple[Data | None, DataUse]
"""The data, and how it becomes inputs."""
MOST_THREADS = 1024
"""More is taken for a typing error; chosen well above the cores of usual machines."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A model with its inputs, or with the error that keeps it from being run."""

    size: ModelSize
    case: Case | None = None
    left_out: Mapping[int, str] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()


def bench(
    models: Model | Sequence[Model],
    *,
    targets: str | Sequence[str] = ("cpu",),
    batches: int | Sequence[int] = (),
    threads: int = 1,
    seconds: float = 3.0,
    timeout: float = 600.0,
    shapes: Shapes | None = None,
    data: Data | None = None,
    preprocess: str | Sequence[str] = (),
    inputs: Mapping[str, str] | None = None,
    labels: str | None = None,
    input_range: Range = DEFAULT_RANGE,
    progress: Progress | None = None,
) -> Comparison:
    """Run models in turns on each target and compare them with the first model.

    Args:
        models: Paths (.onnx or .ort) or `onnx.ModelProto`s, which the results call "model 1", ...
        targets: "cpu" (this machine), "arm64", "arm64:cortex-a53", "ssh://user@host", "tenseal",
            "ezkl", ...
        batches: Batch sizes; if not given, that of the model, or 1.
        threads: Threads of onnxruntime.
        seconds: Measuring time per batch size.
        timeout: Give up on a target after this many seconds.
        shapes: Shapes of inputs with free axes, by name: `{"x": (1, 3, 224, 224)}`.
        data: Inputs: a .npz or .npy file, a folder of images, `{name: array}`, or the array of the
            only input; random numbers if not given.
        preprocess: What is done to the values of the data, as for `optimize`.
        inputs: Arrays of the data by the inputs that take them, where the names differ.
        labels: The array or column of the data that is no input, if it is not called "y".
        input_range: `(low, high)` of random inputs.
        progress: Receives reports of what is being done.

    Raises:
        OnnxfdeError: Something is wrong with the options. What is wrong with a model or a target is
            part of the result.

    >>> from onnxfde.demo import demo_model
    >>> found = bench([demo_model()], seconds=0.0)
    >>> found.targets[0].lines[0].latencies[0].speedup.value
    1.0
    """
    sizes = refuse_bad_numbers(batches, threads, seconds, timeout)
    if isinstance(data, str | Path) and not os.path.exists(data):
        raise DataError(f"--data {data}: no such file")
    spellings = dict.fromkeys(as_texts("targets", targets, "targets"))
    wanted, use = (
        [parse_target(text) for text in spellings],
        DataUse.given(preprocess, inputs, labels),
    )
    refuse_senseless(data, use)
    progress, limits, lengths = progress or Progress(), check_range(input_range), as_shapes(shapes)
    with stored(as_models(models)) as named:
        prepared = [prepare_model(*pair, sizes, lengths, (data, use), limits) for pair in named]
        refuse_unknown_inputs(prepared, lengths)
        job = Job(tuple(p.case for p in prepared if p.case), threads, seconds, timeout)
        refuse_too_long(job)
        results = results_on(wanted, job, prepared, progress)
    settings = {
        "batches": sizes,
        "threads": threads,
        "seconds": seconds,
        "shapes": {name: list(shape) for name, shape in lengths.items()},
        "data": None if data is None else str(data) if isinstance(data, str | Path) else "arrays",
        "input_range": list(limits),
        **use.settings,
    }
    return Comparison(settings, tuple(p.size for p in prepared), results)


def as_models(models: Model | Sequence[Model]) -> list[Model]:
    """The models as a list; anything that is neither a path nor a ModelProto is refused."""
    one = isinstance(models, str | Path | ModelProto | bytes)
    several: list[Any] = list(models) if isinstance(models, Iterable) and not one else [models]
    for model in several:
        if not isinstance(model, str | Path | ModelProto):
            raise UsageError(f"a model is a {type(model).__name__}: give a path or a ModelProto")
    return several


def as_shapes(shapes: Shapes | None) -> dict[str, tuple[int, ...]]:
    """The user's shapes as tuples of numbers."""
    try:
        return {str(name): tuple(map(int, shape)) for name, shape in dict(shapes or {}).items()}
    except (TypeError, ValueError):
        raise UsageError(f"shapes {shapes!r} is not a mapping from names to lengths") from None


@contextmanager
def stored(models: Sequence[Model]) -> Iterator[list[tuple[str, Path]]]:
    """A name and a file for each model; those in memory are written to temporary files."""
    with tempfile.TemporaryDirectory(prefix="onnxfde-") as folder:
        named = []
        for number, model in enumerate(models, start=1):
            if isinstance(model, ModelProto):
                file = Path(folder) / f"{number}.onnx"
                file.write_bytes(model.SerializeToString())
                named.append((f"model {number}", file))
            else:
                named.append((printable(Path(model)), Path(model)))
        yield named


def results_on(
    targets: Sequence[BenchTarget], job: Job, prepared: Sequence[Prepared], progress: Progress
) -> tuple[TargetResult, ...]:
    """Measure on each target; outputs are compared with those of this machine."""
    found = [(target, measure_on(target, job, progress)) for target in targets]
    reference = next((m for t, m in found if t.is_here), None)
    if reference is None and any(isinstance(m, MeasuredJob) for _, m in found):
        reference = measure_on(Cpu(), replace(job, seconds=0.0), progress)
    return tuple(target_result(target, m, prepared, reference) for target, m in found)


def refuse_bad_numbers(
    batches: int | Sequence[int], threads: int, seconds: float, timeout: float
) -> list[int]:
    """Refuse numbers that are out of range; returns the batch sizes as a list."""
    sizes: list[Any] = list(batches) if isinstance(batches, Iterable) else [batches]
    if not all(is_number(size, Integral) for size in sizes):
        raise UsageError(f"--batch {batches!r} is not a whole number or a list of them")
    for name, value in (("threads", threads), ("seconds", seconds), ("timeout", timeout)):
        if not is_number(value):
            raise UsageError(f"--{name} {value!r} is not a number")
    if any(batch < 1 for batch in sizes):
        raise UsageError(f"--batch {min(sizes)} is not a number ≥ 1")
    if not (is_number(threads, Integral) and 1 <= threads <= MOST_THREADS):
        raise UsageError(f"--threads {threads} is not a number from 1 to {MOST_THREADS}")
    if not 0 <= seconds < float("inf"):
        raise UsageError(f"--seconds {seconds} is not a number ≥ 0")
    if not 0 < timeout < float("inf"):
        raise UsageError(f"--timeout {timeout} is not a number > 0")
    return [int(size) for size in sizes]


def prepare_model(
    name: str, file: Path, asked: Sequence[int], shapes: Shapes, data: UsedData, limits: Range
) -> Prepared:
    """Read a model, find its size and make inputs; an error becomes part of the result."""
    try:
        found = prepared_case(file, asked, shapes, data, limits)
    except OnnxfdeError as error:
        return Prepared(ModelSize(name, error=str(error).replace(str(file), name)))
    return replace(found, size=replace(found.size, file=name))


def prepared_case(
    file: Path, asked: Sequence[int], shapes: Shapes, data: UsedData, limits: Range
) -> Prepared:
    """The same as `prepare_model`, but errors are raised."""
    graph = None if files.is_ort(file) else open_model(file).graph
    specs = input_specs(graph) if graph else ort_specs(file)
    tensors = outside_tensors(graph.model) if graph else ()
    outside = tuple(sorted({locate(t, file.parent).file for t in tensors}))
    refuse_types(specs)
    samples = samples_of(*data, specs)
    feeds: dict[int, dict[str, Array]] = {}
    left_out: dict[int, str] = {}
    first: dict[str, Dims] = {}
    for batch in batch_sizes(specs, shapes, asked):
        try:
            fixed = fixed_specs(specs, batch, shapes, samples)
            feeds[batch] = feed_for(fixed, samples, limits)
        except DataError as reason:
            left_out[batch] = str(reason)
            continue
        first = first or {spec.name: spec.dims for spec in fixed}
    if not feeds:
        raise DataError(next(iter(left_out.values())))
    size = ModelSize(
        printable(file),
        bytes=sum(f.stat().st_size for f in (file, *outside)),
        parameters=stored_weights(graph.model) if graph else None,
        multiply_adds=multiply_adds(graph.model, first) if graph else None,
    )
    return Prepared(size, Case(file, outside, feeds), left_out, tuple(s.name for s in specs))


def printable(file: Path) -> str:
    """A file's name, with bytes that are not Unicode replaced."""
    return str(file).encode(errors="replace").decode()


def ort_specs(file: Path) -> Specs:
    """The inputs of a model in onnxruntime's format (.ort)."""
    from onnxfde.running.runtime import session_interface

    return session_interface(file)[0]


def refuse_unknown_inputs(prepared: Sequence[Prepared], shapes: Shapes) -> None:
    """Refuse a shape for an input that no model has."""
    names = sorted({name for model in prepared for name in model.inputs})
    for name in shapes:
        if names and name not in names:
            raise OptionError(f"--shape {name}: no such input; the inputs are {', '.join(names)}")


def refuse_too_long(job: Job) -> None:
    """Refuse measuring times that exceed the timeout."""
    batches = len({batch for case in job.cases for batch in case.inputs})
    if batches * job.seconds >= job.timeout:
        raise UsageError(
            f"--seconds {job.seconds:g} for each of {batches} batch sizes takes longer than "
            f"--timeout {job.timeout:g}; raise --timeout"
        )


def refuse_types(specs: Specs) -> None:
    """Refuse inputs that are not plain numbers."""
    for spec in specs:
        if spec.dtype.kind not in "fiub":
            raise DataError(f"input '{spec.name}' holds {spec.dtype.name}, which bench cannot feed")


def measure_on(target: BenchTarget, job: Job, progress: Progress) -> MeasuredJob | TargetError:
    """Measure on a target; its failure is returned so that the other targets can go on."""
    if not job.cases:
        return TargetError("there is no model to measure")
    try:
        return target.measure(job, progress.say)
    except TargetError as error:
        return error


def target_result(
    target: BenchTarget,
    found: MeasuredJob | TargetError,
    prepared: Sequence[Prepared],
    reference: MeasuredJob | TargetError | None,
) -> TargetResult:
    """The results on one target, in the order of the models."""
    if isinstance(found, TargetError):
        return TargetResult(target.name, error=str(found))
    here_rows: Sequence[MeasuredModel] = [MeasuredModel()] * len(found.rows)
    if isinstance(reference, MeasuredJob) and not target.is_here:
        here_rows = reference.rows
    rows = zip(found.rows, here_rows, strict=True)
    lines, first = [], MeasuredModel()
    for model in prepared:
        if model.case is None:
            lines.append(ModelResult(model.size.file))
            continue
        row, here = next(rows)
        first = row if model is prepared[0] else first
        lines.append(model_result(model.size.file, row, first, here, model.left_out))
    return TargetResult(
        target.name,
        found.machine,
        found.onnxruntime,
        tuple(lines),
        found.counted,
        found.engine,
        found.notable_difference,
    )
