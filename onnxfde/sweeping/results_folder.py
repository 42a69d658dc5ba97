"""The folder of a sweep: what was computed is written as it comes and found again.

    points.jsonl              one line for each point that is done, written last
    sweep.csv, index.html     all models
    NAME/                     one model: curve.svg, report.html, and for each size a model,
                              its report as JSON and its page

A line has the key of its point, which says what the result depends on. The last line of a run that
was killed may be cut off; it is ignored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from onnxfde.errors import OutputError, UsageError
from onnxfde.graph.drafts import flocked, write_text
from onnxfde.graph.files import make_folder, sha256
from onnxfde.graph.new_files import new_files
from onnxfde.pages.sweep_rows import SweepRow
from onnxfde.report import strict_json
from onnxfde.sweeping.points import PointOutcome, PointTask

RECORDS, CSV_FILE, INDEX_FILE = "points.jsonl", "sweep.csv", "index.html"


@dataclass(eq=False)
class ResultsFolder:
    """Where the results of a sweep are."""

    path: Path
    stream: IO[str]
    known: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What was computed before, by key."""
    written: dict[str, str] = field(default_factory=dict)
    """The key of the point that wrote a model last, by file."""

    def done(self, task: PointTask) -> bool:
        """Whether a point was computed before and its files are there, not those of another."""
        found = self.known.get(task.key)
        if found is None:
            return False
        file = found["row"].get("file")
        if file is None:
            return True
        return self.written.get(file) == task.key and self.is_whole(file, found["row"]["sha256"])

    def is_whole(self, file: str, digest: str) -> bool:
        """Whether a model is there as it was written."""
        path = self.path / file
        return path.is_file() and sha256(path) == digest

    def row(self, task: PointTask) -> SweepRow:
        """The row of a point that was computed before."""
        return SweepRow(**self.known[task.key]["row"])

    def original(self, tasks: Iterable[PointTask]) -> SweepRow | None:
        """The row of a model as it was given, if any of its points is known."""
        found = [self.known.get(task.key, {}).get("original") for task in tasks]
        rows = [SweepRow(**fields) for fields in found if fields]
        return max(rows, key=lambda row: row.metric is not None, default=None)

    def add(self, task: PointTask, outcome: PointOutcome) -> None:
        """Write what came out of a point; at last the line that says that it is done.

        A failure is not remembered, unless it says that there is no such size.
        """
        record: dict[str, Any] = {"key": task.key, "seconds": round(outcome.seconds, 3)}
        if outcome.report is None:
            row = SweepRow(task.model_name, task.size, failure=outcome.failure)
        else:
            file = self.write_files(task, outcome)
            row = SweepRow.of_report(task.model_name, task.size, file, outcome.report)
            original = SweepRow.of_original(task.model_name, outcome.report)
            record["original"] = original.to_fields
        record["row"] = row.to_fields
        self.remember(record)
        if outcome.stays:
            self.append(record)

    def remember(self, record: dict[str, Any]) -> None:
        """Know a record from now on."""
        self.known[record["key"]] = record
        if file := record["row"].get("file"):
            self.written[file] = record["key"]

    def append(self, record: dict[str, Any]) -> None:
        """Write a line, completely."""
        self.stream.write(json.dumps(record) + "\n")
        self.stream.flush()
        os.fsync(self.stream.fileno())

    def write_files(self, task: PointTask, outcome: PointOutcome) -> str:
        """Write a model with its report and its page; returns where the model is."""
        folder = self.path / task.model_name
        make_folder(folder)
        model = folder / f"{task.stem}.onnx"
        with new_files(model) as new:
            for name, content in outcome.files:
                is_model = name == model.name
                made = new.new_model() if is_model else new.new_data()
                made.stream.write(content)
                if not is_model:
                    new.add(made, folder / name)
            old = [asdict(each) for each in new.commit()]
        report = {**(outcome.report or {}), "old_weights": old}
        write_text(folder / f"{task.stem}.json", strict_json(report))
        write_text(folder / f"{task.stem}.html", outcome.page)
        return f"{task.model_name}/{model.name}"


@contextmanager
def opened_results(path: Path, models: Iterable[Path]) -> Iterator[ResultsFolder]:
    """Open the folder of a sweep, or make a new one; no other sweep writes there meanwhile."""
    refuse_foreign_folder(path, models)
    make_folder(path)
    file = path / RECORDS
    try:
        stream = file.open("a+", encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{file} cannot be written ({error.strerror})") from None
    with stream:
        if os.name == "posix" and not flocked(stream.fileno(), wait=False):
            raise OutputError(f"--out {path}: another sweep is writing there")
        stream.seek(0)
        text = stream.read()
        if text and not text.endswith("\n"):
            stream.write("\n")
        results = ResultsFolder(path, stream)
        for record in records_of(text):
            results.remember(record)
        yield results


def records_of(text: str) -> Iterator[dict[str, Any]]:
    """The records in a file, without lines that are cut off."""
    for line in text.splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and {"key", "row"} <= found.keys():
            yield found


def refuse_foreign_folder(path: Path, models: Iterable[Path]) -> None:
    """UsageError if a folder holds what no sweep wrote, or a model that is read."""
    if path.exists() and not path.is_dir():
        raise UsageError(f"--out {path} is not a folder; choose another name")
    if path.is_dir() and any(path.iterdir()) and not (path / RECORDS).is_file():
        raise UsageError(f"--out {path} holds files that no sweep wrote; choose another folder")
    home = Path(os.path.realpath(path))
    for model in models:
        if home in Path(os.path.realpath(model)).parents:
            raise UsageError(f"{model} lies in --out {path}, where results go; move it elsewhere")
