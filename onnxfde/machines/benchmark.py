"""`bench`: models → shapes and inputs → one job → measured on each target → ratios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from onnxfde.errors import DataError, OnnxfdeError, OptionError, TargetError
from onnxfde.graph import files
from onnxfde.graph.cost import multiply_adds, stored_weights
from onnxfde.graph.input_specs import input_specs
from onnxfde.graph.shapes import Dims
from onnxfde.graph.tensors import external_tensors, locate
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
from onnxfde.numbers import Array
from onnxfde.options import DEFAULT_RANGE, Range
from onnxfde.progress import Progress
from onnxfde.running.open_files import Data, open_model, samples_of
from onnxfde.running.samples import check_range

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
    models: Sequence[str | Path],
    *,
    targets: Sequence[str] = ("cpu",),
    batches: Sequence[int] = (),
    threads: int = 1,
    seconds: float = 3.0,
    timeout: float = 600.0,
    shapes: Shapes | None = None,
    data: Data | None = None,
    input_range: Range = DEFAULT_RANGE,
    progress: Progress | None = None,
) -> Comparison:
    """Run models in turns on each target and compare them with the first model.

    >>> from onnxfde.demo import demo_model
    >>> found = bench([demo_model()], seconds=0.0)
    >>> found.targets[0].lines[0].latencies[0].speedup.value
    1.0
    """
    refuse_bad_numbers(batches, threads, seconds, timeout)
    if isinstance(data, str | Path) and not Path(data).is_file():
        raise DataError(f"--data {data}: no such file")
    wanted = [parse_target(text) for text in dict.fromkeys(targets)]
    progress, limits = progress or Progress(), check_range(input_range)
    prepared = [prepare_model(Path(m), batches, shapes or {}, data, limits) for m in models]
    refuse_unknown_inputs(prepared, shapes or {})
    cases = tuple(p.case for p in prepared if p.case)
    job = Job(cases, threads, seconds, timeout)
    refuse_too_long(job)
    found = [(target, measure_on(target, job, progress)) for target in wanted]
    reference = next((m for t, m in found if t.is_here), None)
    if reference is None and any(isinstance(m, MeasuredJob) for _, m in found):
        reference = measure_on(Cpu(), replace(job, seconds=0.0), progress)
    settings = {
        "batches": list(batches),
        "threads": threads,
        "seconds": seconds,
        "shapes": {name: list(shape) for name, shape in (shapes or {}).items()},
        "data": None if data is None else str(data) if isinstance(data, str | Path) else "arrays",
        "input_range": list(limits),
    }
    results = tuple(target_result(target, m, prepared, reference) for target, m in found)
    return Comparison(settings, tuple(p.size for p in prepared), results)


def refuse_bad_numbers(
    batches: Sequence[int], threads: int, seconds: float, timeout: float
) -> None:
    """Refuse numbers that are out of range."""
    if any(batch < 1 for batch in batches):
        raise OptionError(f"--batch {min(batches)} is not a number ≥ 1")
    if not 1 <= threads <= MOST_THREADS:
        raise OptionError(f"--threads {threads} is not a number from 1 to {MOST_THREADS}")
    if not 0 <= seconds < float("inf"):
        raise OptionError(f"--seconds {seconds} is not a number ≥ 0")
    if not 0 < timeout < float("inf"):
        raise OptionError(f"--timeout {timeout} is not a number > 0")


def prepare_model(
    file: Path, asked: Sequence[int], shapes: Shapes, data: Data | None, limits: Range
) -> Prepared:
    """Read a model, find its size and make inputs; an error becomes part of the result."""
    try:
        return prepared_case(file, asked, shapes, data, limits)
    except OnnxfdeError as error:
        return Prepared(ModelSize(printable(file), error=str(error)))


def prepared_case(
    file: Path, asked: Sequence[int], shapes: Shapes, data: Data | None, limits: Range
) -> Prepared:
    """The same as `prepare_model`, but errors are raised."""
    graph = None if files.is_ort(file) else open_model(file).graph
    specs = input_specs(graph) if graph else ort_specs(file)
    tensors = external_tensors(graph.model) if graph else ()
    outside = tuple(sorted({locate(t, file.parent).file for t in tensors}))
    refuse_types(specs)
    samples = None if data is None else samples_of(data, specs)
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
    from onnxfde.running.runtime import session_inputs

    return session_inputs(file)


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
        raise OptionError(
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
    return TargetResult(target.name, found.machine, found.onnxruntime, tuple(lines), found.counted)
