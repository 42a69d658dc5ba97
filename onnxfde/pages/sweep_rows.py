"""What a table, a curve and a CSV file show of one point of a sweep."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

ORIGINAL = "original"
"""The size of the row that shows a model as it was given."""
TIMES = ("latency_ms", "speedup")
"""Columns that differ from run to run; all others do not."""


@dataclass(frozen=True)
class SweepRow:
    """One model at one size; None where something is not known."""

    model: str
    size: str
    """What was asked for, such as 50%."""
    parameters: int | None = None
    parameters_percent: float | None = None
    """What is left of the original's."""
    bytes: int | None = None
    multiply_adds: int | None = None
    """Of one sample."""
    relative_l2: float | None = None
    """The change of the outputs, of what they vary, on `samples` rows: of the output that changes
    most."""
    relative_l2_low: float | None = None
    """In which range it lies for all inputs of this kind, 19 times in 20."""
    relative_l2_high: float | None = None
    metric: str | None = None
    metric_value: float | None = None
    """Accuracy or mean squared error, if the data holds labels."""
    metric_low: float | None = None
    metric_high: float | None = None
    certified_change: float | None = None
    """No input in the range changes an output by more, in the unit of the output; the largest of
    all outputs, with an estimate of rounding."""
    certified_useful: bool | None = None
    """Whether that is not more than what each output varies by anyway."""
    samples: int | None = None
    held_out: bool | None = None
    """Whether these rows had no part in making the result."""
    latency_ms: float | None = None
    """The median time of one run on this machine."""
    speedup: float | None = None
    """How many times as fast as the original."""
    file: str | None = None
    """The model that was written, beside the CSV file."""
    sha256: str | None = None
    failure: str | None = None
    """Why there is no result, if there is none."""

    @classmethod
    def of_report(cls, model: str, size: str, file: str, report: dict[str, Any]) -> Self:
        """The row of a run of `optimize`."""
        checked, proof = report["verification"] or {}, report["certificate"]
        outputs = proof["outputs"] if proof and not proof["unavailable"] else []
        rounding = (proof and proof["rounding"]) or 0.0
        same = report["unchanged"] is not None
        return cls(
            model=model,
            size=size,
            parameters=report["parameters"]["after"],
            parameters_percent=report["grp_percent"],
            bytes=report["bytes"]["after"],
            multiply_adds=(report["multiply_adds"] or {}).get("after"),
            relative_l2=0.0 if same else checked.get("relative_l2"),
            **ends("relative_l2", None if same else checked.get("relative_l2_interval")),
            metric=checked.get("metric"),
            metric_value=checked.get("metric_after"),
            **ends("metric", checked.get("metric_after_interval")),
            certified_change=max((o["bound"] + rounding for o in outputs), default=None),
            certified_useful=all(o["useful"] for o in outputs) if outputs else None,
            samples=checked.get("samples"),
            held_out=checked.get("held_out"),
            file=file,
            sha256=report["output_sha256"],
        )

    @classmethod
    def of_original(cls, model: str, report: dict[str, Any]) -> Self:
        """The row of the model as it was given, as any run on it tells."""
        checked = report["verification"] or {}
        return cls(
            model=model,
            size=ORIGINAL,
            parameters=report["parameters"]["before"],
            parameters_percent=100.0,
            bytes=report["bytes"]["before"],
            multiply_adds=(report["multiply_adds"] or {}).get("before"),
            relative_l2=0.0,
            metric=checked.get("metric"),
            metric_value=checked.get("metric_before"),
            **ends("metric", checked.get("metric_before_interval")),
            sha256=report["input_sha256"],
        )

    def interval(self, name: str) -> tuple[float, float] | None:
        """The range of a number, if it is known."""
        low, high = getattr(self, f"{name}_low"), getattr(self, f"{name}_high")
        return None if low is None or high is None else (low, high)

    @property
    def to_fields(self) -> dict[str, Any]:
        """All fields by name."""
        return asdict(self)


def ends(name: str, interval: Sequence[float] | None) -> dict[str, Any]:
    """The two columns of an interval."""
    low, high = interval or (None, None)
    return {f"{name}_low": low, f"{name}_high": high}


COLUMNS = tuple(field.name for field in fields(SweepRow))


def csv_text(rows: Iterable[SweepRow]) -> str:
    """A table of rows; what is not known is empty."""
    stream = io.StringIO(newline="")
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(COLUMNS)
    for row in rows:
        table.writerow(["" if v is None else v for v in row.to_fields.values()])
    return stream.getvalue().encode("utf-8", "backslashreplace").decode()
