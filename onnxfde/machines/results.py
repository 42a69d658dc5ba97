"""The results of `bench`, as `bench --json` writes them (schema 1).

Speed-up of a model = median time (or instructions) of the first model / that of this model.
Without the call: the same with the instructions of a model that does nothing subtracted from both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeGuard

import numpy as np

from onnxfde import __version__
from onnxfde.machines.ratios import Ratio, ratio_of
from onnxfde.machines.targets.base import (
    NOTABLE_DIFFERENCE,
    Figure,
    MeasuredBatch,
    MeasuredModel,
)
from onnxfde.numbers import Array

BENCH_SCHEMA = 1
"""The version of the JSON format; raise it when a field changes its meaning."""
LEAST_WORK = 0.02
"""Share of a count that must remain without the call for a ratio to be formed: six times the
largest spread of repeated counts, 0.32 % in benchmarks/latency/RESULTS.md."""


@dataclass(frozen=True)
class ModelSize:
    """The size of a model; None where it is unknown."""

    file: str
    bytes: int | None = None
    parameters: int | None = None
    multiply_adds: int | None = None
    """Multiply-adds of one run at the first batch size."""
    error: str | None = None


@dataclass(frozen=True)
class BatchResult:
    """One model at one batch size; times in seconds, counts per run."""

    batch: int
    speedup: Ratio | None = None
    p50: float | None = None
    p90: float | None = None
    least: float | None = None
    turns: int | None = None
    instructions: float | None = None
    speedup_without_call: float | None = None
    """Speed-up in instructions beyond those of a call."""
    simd: float | None = None
    repeatability: float | None = None
    """(largest − smallest) / smallest of the repeated counts."""
    difference: float | None = None
    """Largest difference from this machine's outputs, relative to the largest of them."""
    left_out: str | None = None
    """Why the model cannot run at this batch size."""
    figures: tuple[Figure, ...] = ()
    """What else the target counted or measured."""
    error: str | None = None


@dataclass(frozen=True)
class ModelResult:
    """One model on one target."""

    file: str
    latencies: tuple[BatchResult, ...] = ()
    load: float | None = None
    """Median time in seconds to make a session."""
    peak_memory: int | None = None
    """Bytes by which the peak memory of a process grew when it loaded and ran the model."""
    call: float | None = None
    """Instructions of a call: those of a run of a model that does nothing."""
    error: str | None = None


@dataclass(frozen=True)
class TargetResult:
    """All models on one target."""

    target: str
    machine: str = ""
    onnxruntime: str = ""
    lines: tuple[ModelResult, ...] = ()
    counts: bool = False
    """Whether instructions were counted instead of measuring time."""
    engine: str = ""
    """What ran the models, if it was not onnxruntime."""
    notable_difference: float = NOTABLE_DIFFERENCE
    """Differences from this machine's outputs that deserve a warning."""
    error: str | None = None


@dataclass(frozen=True)
class Comparison:
    """All models on all targets."""

    settings: dict[str, Any]
    models: tuple[ModelSize, ...]
    targets: tuple[TargetResult, ...]

    @property
    def readable(self) -> bool:
        """Whether any of the models could be read and fed."""
        return not all(model.error for model in self.models)

    @property
    def failed(self) -> bool:
        """Whether something that should have been measured was not."""
        lines = [line for place in self.targets for line in place.lines]
        runs = [run for line in lines for run in line.latencies]
        errors = (
            *(model.error for model in self.models),
            *(place.error for place in self.targets),
            *(line.error for line in lines),
            *(run.error for run in runs),
        )
        return any(errors)

    def to_json(self) -> str:
        """The comparison as JSON."""
        content = {"schema": BENCH_SCHEMA, "version": __version__, **asdict(self)}
        return json.dumps(content, indent=2, allow_nan=False) + "\n"


def model_result(
    file: str,
    row: MeasuredModel,
    first: MeasuredModel,
    here: MeasuredModel,
    left_out: Mapping[int, str],
) -> ModelResult:
    """The result of one model, compared with the first one and with this machine's outputs."""
    if row.error:
        return ModelResult(file, error=row.error)
    runs = {
        batch: replace(
            batch_result(batch, run, first.runs.get(batch), here.runs.get(batch)),
            speedup_without_call=ratio_without_call(batch, row, first),
        )
        for batch, run in row.runs.items()
    }
    runs |= {batch: BatchResult(batch, left_out=reason) for batch, reason in left_out.items()}
    load = float(np.median(row.load_seconds)) if row.load_seconds else None
    return ModelResult(file, tuple(runs[b] for b in sorted(runs)), load, row.peak_memory, row.call)


def ratio_without_call(batch: int, row: MeasuredModel, first: MeasuredModel) -> float | None:
    """How many times fewer instructions than the first model takes, beyond those of a call."""
    work = []
    for model in (first, row):
        run = model.runs.get(batch)
        if not succeeded(run) or not run.instructions or model.call is None:
            return None
        count = float(np.median(run.instructions))
        work.append(count - model.call if count - model.call > LEAST_WORK * count else None)
    return work[0] / work[1] if work[0] and work[1] else None


def batch_result(
    batch: int, run: MeasuredBatch, first: MeasuredBatch | None, here: MeasuredBatch | None
) -> BatchResult:
    """The result at one batch size, compared in the same way."""
    if run.error:
        return BatchResult(batch, error=run.error)
    difference = relative_difference(run.outputs, here.outputs) if succeeded(here) else None
    if run.instructions:
        counts = np.asarray(run.instructions)
        return BatchResult(
            batch,
            speedup=ratio_of([first.instructions], [run.instructions])
            if succeeded(first)
            else None,
            instructions=float(np.median(counts)),
            simd=float(np.median(run.simd)),
            repeatability=float(np.ptp(counts) / counts.min()),
            difference=difference,
        )
    times = np.concatenate([np.asarray(times) for times in run.seconds])
    p50, p90 = np.percentile(times, (50, 90))
    return BatchResult(
        batch,
        speedup=ratio_of(first.seconds, run.seconds) if succeeded(first) else None,
        p50=float(p50),
        p90=float(p90),
        least=run.least,
        turns=len(times),
        difference=difference,
        figures=run.figures,
    )


def succeeded(run: MeasuredBatch | None) -> TypeGuard[MeasuredBatch]:
    """Whether there is a run, and it did not fail."""
    return run is not None and run.error is None


def relative_difference(found: Sequence[Array], wanted: Sequence[Array]) -> float | None:
    """Largest |found − wanted| / max |wanted| of all outputs; None if it is undefined."""
    worst = 0.0
    for a, b in zip(found, wanted, strict=True):
        here, there = (np.asarray(v, dtype=np.float64) for v in (b, a))
        if here.shape != there.shape or not (np.isfinite(here) & np.isfinite(there)).all():
            return None
        scale = np.abs(here).max(initial=0.0) or 1.0
        worst = max(worst, float(np.abs(there - here).max(initial=0.0) / scale))
    return worst
