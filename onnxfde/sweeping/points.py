"""One point of a sweep: a model at one size. The same function runs in a process here or elsewhere.

files in  →  `optimize`  →  the smaller model, its report and its page, as bytes

Nothing stays where it ran. In one process points run one after the other, with one thread for
linear algebra, so that a point gives the same bytes wherever it runs.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import threading
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from onnxfde import __version__
from onnxfde.errors import GoalMissed, OnnxfdeError, OptionError
from onnxfde.limits import SIZE_GOALS
from onnxfde.options import Options
from onnxfde.sweeping.parcels import Parcel

ONE_AT_A_TIME = threading.Lock()
"""Threads of a worker share the limits on threads of linear algebra: one point at a time."""


@dataclass(frozen=True)
class PointTask:
    """What is to be computed, with all that it needs."""

    model_name: str
    size: str
    """What is asked for, as the user writes it."""
    stem: str
    """The name of its files, without suffix."""
    model: Parcel
    data: Parcel | None
    options: Options
    """Without the data, which is a parcel."""
    command: str
    """What makes the same on the command line."""
    key: str = ""
    """Says what the result depends on; a result with the same key need not be computed again."""
    version: str = __version__

    def with_key(self, model_hash: str, data_hash: str | None) -> PointTask:
        """The same with its key."""
        options, file = asdict(self.options), [self.model_name, self.stem]
        depends = [self.version, model_hash, data_hash, options, file]
        text = json.dumps(depends, sort_keys=True, default=str)
        return replace(self, key=hashlib.sha256(text.encode()).hexdigest())

    def packed(self) -> PointTask:
        """The same with the bytes of its files."""
        return replace(self, model=self.model.packed(), data=self.data and self.data.packed())


@dataclass(frozen=True)
class PointOutcome:
    """What came out of a point."""

    files: tuple[tuple[str, bytes], ...] = ()
    """The model and its external data, by name."""
    report: dict[str, Any] | None = None
    page: str = ""
    failure: str | None = None
    """Why there is no result, if there is none."""
    missed: bool = False
    """Whether that is because no such size can be had, which is no fault."""
    seconds: float = 0.0

    @property
    def stays(self) -> bool:
        """Whether there is a result, or can be none: the point need not be computed again."""
        return self.report is not None or self.missed


def run_point(task: PointTask) -> PointOutcome:
    """Compute a point; what is wrong with model, data or size is part of the outcome."""
    if task.version != __version__:
        return PointOutcome(
            failure=f"onnxfde {task.version} asked for it, and this worker has {__version__}: "
            "install the same version everywhere"
        )
    with ONE_AT_A_TIME, tempfile.TemporaryDirectory(prefix="onnxfde-point-") as name:
        folder = Path(name)
        try:
            return computed(task, folder)
        except OnnxfdeError as error:
            missed = isinstance(error, GoalMissed | OptionError)
            reason = with_own_option(without_folder(str(error), task, folder))
            return PointOutcome(failure=reason, missed=missed)


def computed(task: PointTask, folder: Path) -> PointOutcome:
    """The same in a folder that is removed afterwards."""
    from time import perf_counter

    from threadpoolctl import threadpool_limits

    from onnxfde.pages.report_page import ReportPage
    from onnxfde.pipeline import optimized

    start = perf_counter()
    model = task.model.unpacked(folder / "model")
    data = task.data.unpacked(folder / "data") if task.data else None
    made = folder / "made"
    made.mkdir()
    with threadpool_limits(1, user_api="blas"):
        result = optimized(model, replace(task.options, data=data), frontiers=True)
        saved = result.save(made / f"{task.stem}.onnx")
        report = without_folder(json.loads(saved.to_json()), task, folder)
        page = ReportPage.of(result, task.model.path.name, task.command).of_fields(report)
    written = sorted(file for file in made.rglob("*") if file.is_file())
    files = tuple((str(file.relative_to(made)), file.read_bytes()) for file in written)
    return PointOutcome(files, report, page, seconds=perf_counter() - start)


def with_own_option(text: str) -> str:
    """A text in which the option of a size has the name that it has in a sweep."""
    for kind in SIZE_GOALS:
        text = text.replace(f"--max-{kind}", "--sizes")
    return text


def without_folder(value: Any, task: PointTask, folder: Path) -> Any:
    """A value whose texts call files that travelled by the names that the user knows."""
    if isinstance(value, dict):
        return {name: without_folder(inside, task, folder) for name, inside in value.items()}
    if isinstance(value, list):
        return [without_folder(inside, task, folder) for inside in value]
    if isinstance(value, str):
        for parcel, place in ((task.model, "model"), (task.data, "data")):
            if parcel is not None:
                value = value.replace(str(folder / place / parcel.path.name), str(parcel.path))
                value = value.replace(str(folder / place), str(parcel.root))
    return value
