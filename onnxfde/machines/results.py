"""Models side by side on targets, as `bench --json` writes it (schema 1).

Speed-up = median time, or instructions, of the first model / that of another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeGuard

import numpy as np

from onnxfde import __version__
from onnxfde.machines.ratios import Ratio, ratio_of
from onnxfde.machines.targets.base import Array, Row, Run

SCHEMA = 1


@dataclass(frozen=True)
class Subject:
    """A model and its size; null where it cannot be told."""

    file: str
    bytes: int | None = None
    parameters: int | None = None
    multiply_adds: int | None = None
    """Of one run at the first batch size."""
    error: str | None = None


@dataclass(frozen=True)
class Latency:
    """One model at one batch size; times in seconds, counts per run."""

    batch: int
    speedup: Ratio | None = None
    p50: float | None = None
    p90: float | None = None
    least: float | None = None
    turns: int | None = None
    instructions: float | None = None
    simd: float | None = None
    repeatability: float | None = None
    """(largest − smallest) / smallest count of the measured regions."""
    difference: float | None = None
    """Largest difference from this machine's outputs, relative to the largest of these."""
    left_out: str | None = None
    """Why the model has no such batch size."""
    error: str | None = None


@dataclass(frozen=True)
class Line:
    """One model on one target."""

    file: str
    latencies: tuple[Latency, ...] = ()
    load: float | None = None
    """Seconds to make a session, the median of several."""
    peak_memory: int | None = None
    """Bytes that loading the model and running all batches once added to a process."""
    error: str | None = None


@dataclass(frozen=True)
class Place:
    """All models on one target."""

    target: str
    machine: str = ""
    onnxruntime: str = ""
    lines: tuple[Line, ...] = ()
    counts: bool = False
    """Whether instructions were counted here instead of time taken."""
    error: str | None = None


@dataclass(frozen=True)
class Comparison:
    """Models side by side."""

    settings: dict[str, Any]
    models: tuple[Subject, ...]
    targets: tuple[Place, ...]

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
        """The comparison as text."""
        content = {"schema": SCHEMA, "version": __version__, **asdict(self)}
        return json.dumps(content, indent=2, allow_nan=False) + "\n"


def line_of(file: str, row: Row, first: Row, here: Row, left_out: Mapping[int, str]) -> Line:
    """What was measured of one model, beside the first one."""
    if row.error:
        return Line(file, error=row.error)
    runs = {
        batch: latency_of(batch, run, first.runs.get(batch), here.runs.get(batch))
        for batch, run in row.runs.items()
    }
    runs |= {batch: Latency(batch, left_out=reason) for batch, reason in left_out.items()}
    load = float(np.median(row.load_seconds)) if row.load_seconds else None
    return Line(file, tuple(runs[b] for b in sorted(runs)), load, row.peak_memory)


def latency_of(batch: int, run: Run, first: Run | None, here: Run | None) -> Latency:
    """What was measured of one run."""
    if run.error:
        return Latency(batch, error=run.error)
    difference = relative_difference(run.outputs, here.outputs) if is_fine(here) else None
    if run.instructions:
        counts = np.asarray(run.instructions)
        return Latency(
            batch,
            speedup=ratio_of([first.instructions], [run.instructions]) if is_fine(first) else None,
            instructions=float(np.median(counts)),
            simd=float(np.median(run.simd)),
            repeatability=float(np.ptp(counts) / counts.min()),
            difference=difference,
        )
    times = np.concatenate([np.asarray(times) for times in run.seconds])
    p50, p90 = np.percentile(times, (50, 90))
    return Latency(
        batch,
        speedup=ratio_of(first.seconds, run.seconds) if is_fine(first) else None,
        p50=float(p50),
        p90=float(p90),
        least=run.least,
        turns=len(times),
        difference=difference,
    )


def is_fine(run: Run | None) -> TypeGuard[Run]:
    """Whether a run can be compared with."""
    return run is not None and run.error is None


def relative_difference(found: Sequence[Array], wanted: Sequence[Array]) -> float | None:
    """Largest difference of all outputs, each relative to its largest value; None if undefined."""
    worst = 0.0
    for a, b in zip(found, wanted, strict=True):
        here, there = (np.asarray(v, dtype=np.float64) for v in (b, a))
        if here.shape != there.shape or not (np.isfinite(here) & np.isfinite(there)).all():
            return None
        scale = np.abs(here).max(initial=0.0) or 1.0
        worst = max(worst, float(np.abs(there - here).max(initial=0.0) / scale))
    return worst
