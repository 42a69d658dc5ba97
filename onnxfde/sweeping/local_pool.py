"""Points in processes of this machine.

A process that is killed takes those with it that run beside it. They run again, one at a time: the
one that is killed once more has no result, the others have lost time only.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Any, Self

from onnxfde.errors import in_one_line
from onnxfde.sweeping.points import PointOutcome, PointTask, run_point

ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""The variables that limit threads in processes that are started from now on."""
LOST_PROCESS = "its process ended without a result, twice (was it killed, or out of memory?)"

FinishedPoint = tuple[PointTask, PointOutcome]


def begin(scratch: str) -> None:
    """Start a process: Ctrl-C is left to the parent, with which this process ends.

    Its temporary files lie in a folder that the parent removes; if that is killed, this process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tempfile.tempdir = scratch
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end() -> None:
        parent.join()
        shutil.rmtree(scratch, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


def settled(future: Future[PointOutcome]) -> PointOutcome:
    """The outcome of a point that ended, also if nobody foresaw how."""
    error = future.exception()
    return future.result() if error is None else unforeseen(error)


def unforeseen(error: BaseException) -> PointOutcome:
    """The outcome of a point that failed in a way nobody foresaw."""
    text = f"unexpected error ({type(error).__name__}: {in_one_line(error)})"
    return PointOutcome(failure=text)


@dataclass
class LocalPool:
    """Runs points in so many processes."""

    jobs: int
    before: dict[str, str] = field(default_factory=dict)
    """What this process had in the place of those variables."""
    others: list[Any] = field(default_factory=list)
    """Processes that were there before."""
    scratch: str = ""
    """Where processes have their temporary files."""

    def __enter__(self) -> Self:
        """Let processes that are started from now on have one thread each."""
        self.before.update({n: os.environ[n] for n in ONE_THREAD if n in os.environ})
        self.others.extend(multiprocessing.active_children())
        os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
        self.scratch = tempfile.mkdtemp(prefix="onnxfde-sweep-")
        return self

    def __exit__(self, *error: object) -> None:
        """Leave no process and no file behind, and the variables as they were."""
        for name in ONE_THREAD:
            del os.environ[name]
        os.environ.update(self.before)
        for process in multiprocessing.active_children():
            if process not in self.others:
                process.terminate()
                process.join()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def outcomes(self, tasks: Iterator[PointTask]) -> Iterator[FinishedPoint]:
        """The outcomes as they come."""
        suspects: list[PointTask] = []
        while True:
            yield from self.run(tasks, self.jobs, suspects)
            if not suspects:
                return
            for task in suspects.copy():
                again: list[PointTask] = []
                yield from self.run(iter([task]), 1, again)
                if again:
                    yield task, PointOutcome(failure=LOST_PROCESS)
            suspects.clear()

    def run(
        self, tasks: Iterator[PointTask], jobs: int, lost: list[PointTask]
    ) -> Iterator[FinishedPoint]:
        """Outcomes until no task is left, or a process is lost with those that are under way."""
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(jobs, context, begin, (self.scratch,))
        under_way: dict[Future[PointOutcome], PointTask] = {}
        try:
            while True:
                while len(under_way) < jobs and not lost and (task := next(tasks, None)):
                    try:
                        under_way[pool.submit(run_point, task)] = task
                    except BrokenProcessPool:
                        lost.append(task)
                if not under_way:
                    return
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    task = under_way.pop(future)
                    if isinstance(future.exception(), BrokenProcessPool):
                        lost.append(task)
                    else:
                        yield task, settled(future)
        finally:
            pool.shutdown(wait=not under_way, cancel_futures=True)
