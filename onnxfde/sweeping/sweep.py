"""A sweep: every model at every size, what is known already left out.

models → points → [known?] → processes or cluster → folder, as they come → times → pages
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from onnxfde.estimates import interval_text
from onnxfde.graph.drafts import write_text
from onnxfde.pages.sweep_index import index_page
from onnxfde.pages.sweep_pages import ModelSweep, model_page, standalone_curve
from onnxfde.pages.sweep_rows import SweepRow, csv_text
from onnxfde.progress import Progress
from onnxfde.sweeping.ladder import SizeLadder, SweptModel, why_unread
from onnxfde.sweeping.latencies import timed_rows
from onnxfde.sweeping.local_pool import FinishedPoint
from onnxfde.sweeping.points import PointTask
from onnxfde.sweeping.results_folder import CSV_FILE, INDEX_FILE, ResultsFolder

PAGE_FILE, CURVE_FILE = "report.html", "curve.svg"


class Pool(Protocol):
    """Something that computes points."""

    def outcomes(self, tasks: Iterator[PointTask]) -> Iterator[FinishedPoint]:
        """The outcomes as they come; few tasks are taken before they can be computed."""


@dataclass(eq=False)
class Sweep:
    """A sweep that is under way."""

    ladder: SizeLadder
    results: ResultsFolder
    command: str
    progress: Progress = field(default_factory=Progress)
    latency: bool = True
    """Whether times are measured at the end."""
    unread: dict[str, str] = field(default_factory=dict)
    """Why models have no points, by name."""
    points: dict[str, list[PointTask]] = field(default_factory=dict)
    """Without the bytes of files, which are read when a point is about to be computed."""
    kept: int = 0
    """How many points the folder of results has."""
    noted: set[tuple[str, str | None]] = field(default_factory=set)
    """Models with the reasons why points of theirs have no result."""

    def plan(self) -> None:
        """Read what the points depend on."""
        for model in self.ladder.models:
            found = why_unread(self.ladder, model)
            if isinstance(found, str):
                self.unread[model.name] = found
            else:
                self.points[model.name] = found

    def left(self) -> list[PointTask]:
        """The points that were not computed before."""
        tasks = [task for found in self.points.values() for task in found]
        return [task for task in tasks if not self.results.done(task)]

    @property
    def total(self) -> int:
        """How many points there are."""
        return sum(map(len, self.points.values()))

    def run(self, pool: Pool) -> list[ModelSweep]:
        """Compute what is left and write everything; returns what came out of each model."""
        try:
            self.compute(pool)
            return self.finish()
        except KeyboardInterrupt:
            text = f"{self.kept} of {self.total} points are kept in {self.results.path}"
            raise KeyboardInterrupt(f"{text}, give the same command to go on") from None

    def compute(self, pool: Pool) -> None:
        """Compute what is left."""
        left = self.left()
        self.kept = known = self.total - len(left)
        if known:
            self.progress.note(f"{known} of {self.total} points are known already")
        self.progress.layer(f"{self.total} points of {len(self.ladder.models)} models")
        self.progress.at(known, self.total)
        for number, (task, outcome) in enumerate(pool.outcomes(iter(left)), start=1):
            self.results.add(task, outcome)
            self.kept += outcome.stays
            self.progress.at(known + number, self.total)
            self.note(self.results.row(task), outcome.seconds)
            self.write_csv(self.rows())
        self.progress.layer("")

    def note(self, row: SweepRow, seconds: float) -> None:
        """Note what came out of a point; why there is nothing only once for each model."""
        if row.failure is None or (row.model, row.failure) not in self.noted:
            self.progress.note(told(row, seconds))
        self.noted.add((row.model, row.failure))

    def rows(self) -> Iterator[SweepRow]:
        """All rows that are known, model by model."""
        for model in self.ladder.models:
            yield from self.rows_of(model)

    def rows_of(self, model: SweptModel) -> list[SweepRow]:
        """The rows of a model, first as it was given."""
        if model.name in self.unread:
            reason = self.unread[model.name]
            return [SweepRow(model.name, rung.text, failure=reason) for rung in self.ladder.rungs]
        tasks = self.points[model.name]
        original = self.results.original(tasks)
        known = [self.results.row(task) for task in tasks if task.key in self.results.known]
        return [original, *(scored(row, original) for row in known)] if original else known

    def write_csv(self, rows: Iterable[SweepRow]) -> None:
        """Write the table of all models."""
        write_text(self.results.path / CSV_FILE, csv_text(rows))

    def finish(self) -> list[ModelSweep]:
        """Measure times and write pages, curves and the table."""
        found = []
        limits = self.ladder.options.range_used
        for number, model in enumerate(self.ladder.models, start=1):
            rows = self.rows_of(model)
            if self.latency:
                self.progress.say("measuring times")
                rows = timed_rows(rows, model.path, self.results, limits)
            done = ModelSweep(model.name, str(model.path), self.ladder.kind, tuple(rows))
            found.append(done)
            self.write_model(done)
            self.progress.at(number, len(self.ladder.models))
        self.write_csv(row for done in found for row in done.rows)
        write_text(self.results.path / INDEX_FILE, index_page(found, self.command))
        return found

    def write_model(self, done: ModelSweep) -> None:
        """Write the page and the curve of a model, if it has any results."""
        folder = self.results.path / done.name
        if folder.is_dir():
            write_text(folder / PAGE_FILE, model_page(done, self.command))
            write_text(folder / CURVE_FILE, standalone_curve(done))


def scored(row: SweepRow, original: SweepRow) -> SweepRow:
    """A row that says of an unchanged model what is known of the original."""
    same = row.sha256 is not None and row.sha256 == original.sha256
    if not same:
        return row
    low, high = original.metric_low, original.metric_high
    score = original.metric_value
    return replace(
        row, metric=original.metric, metric_value=score, metric_low=low, metric_high=high
    )


def told(row: SweepRow, seconds: float) -> str:
    """A point in one line."""
    head = f"{row.model} {row.size}"
    if row.failure is not None:
        return f"{head}: {row.failure}"
    ends = interval_text(row.interval("relative_l2"))
    error = "" if row.relative_l2 is None else f", error {row.relative_l2:.2g}{ends}"
    ends = interval_text(row.interval("metric"), "{:.3g}".format)
    score = "" if row.metric_value is None else f", {row.metric} {row.metric_value:.4g}{ends}"
    return f"{head}: {row.parameters:,} parameters{error}{score} ({seconds:.1f} s)"


def models_read(ladder: SizeLadder) -> list[Path]:
    """All files that a sweep is given."""
    return [model.path for model in ladder.models]
