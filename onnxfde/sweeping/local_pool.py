"""Points in processes of this machine, each of which has a line of its own to this one.

    task →  process  → outcome;   the line is closed without one:  the process was lost

What a lost process was computing runs again, alone, when all else is done: if that process is lost
too, the point has no result; else only time was lost. (Not a ProcessPoolExecutor: its processes
share one line, and if one is killed while it sends a result, everybody waits forever.)
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Self

from onnxfde.errors import in_one_line
from onnxfde.sweeping.points import PointOutcome, PointTask, run_point

ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""The variables that limit threads in processes that are started from now on."""
LOST_PROCESS = "its process ended without a result, twice (was it killed, or out of memory?)"
SECONDS_TO_END = 5.0
"""How long a process may take to end before it is killed. Chosen; not tuned."""

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


def serve(line: Connection, scratch: str) -> None:
    """Compute one point after the other until the line is closed."""
    begin(scratch)
    with ThreadPoolExecutor(1) as thread:
        while True:
            try:
                task: PointTask = line.recv()
            except EOFError:
                return
            line.send(settled(thread.submit(run_point, task)))


def settled(future: Future[PointOutcome]) -> PointOutcome:
    """The outcome of a point that ended, also if nobody foresaw how."""
    error = future.exception()
    return future.result() if error is None else unforeseen(error)


def unforeseen(error: BaseException) -> PointOutcome:
    """The outcome of a point that failed in a way nobody foresaw."""
    text = f"unexpected error ({type(error).__name__}: {in_one_line(error)})"
    return PointOutcome(failure=text)


@dataclass(eq=False)
class PointProcess:
    """A process that computes points."""

    process: SpawnProcess
    line: Connection
    task: PointTask | None = None
    """What it is computing."""

    @classmethod
    def started(cls, scratch: str) -> Self:
        """Start a process; nobody but it has the other end of the line."""
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=serve, args=(there, scratch), daemon=True)
        process.start()
        there.close()
        return cls(process, here)

    def give(self, task: PointTask) -> None:
        """Let it compute a point; if it is gone, `take` tells."""
        self.task = task
        try:
            self.line.send(task)
        except OSError:
            self.line.close()

    def take(self) -> PointOutcome | None:
        """What came out; None if the process was lost."""
        try:
            found: PointOutcome = self.line.recv()
        except (EOFError, OSError):
            return None
        self.task = None
        return found

    def end(self) -> None:
        """End the process, whatever it does."""
        self.line.close()
        self.process.terminate()
        self.process.join(SECONDS_TO_END)
        self.process.kill()
        self.process.join(SECONDS_TO_END)


@dataclass
class LocalPool:
    """Runs points in so many processes."""

    jobs: int
    before: dict[str, str] = field(default_factory=dict)
    """What this process had in the place of those variables."""
    processes: list[PointProcess] = field(default_factory=list)
    scratch: str = ""
    """Where processes have their temporary files."""

    def __enter__(self) -> Self:
        """Let processes that are started from now on have one thread each."""
        self.before.update({n: os.environ[n] for n in ONE_THREAD if n in os.environ})
        os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
        self.scratch = tempfile.mkdtemp(prefix="onnxfde-sweep-")
        return self

    def __exit__(self, *error: object) -> None:
        """Leave no process and no file behind, and the variables as they were."""
        for name in ONE_THREAD:
            del os.environ[name]
        os.environ.update(self.before)
        while self.processes:
            self.processes.pop().end()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def outcomes(self, tasks: Iterator[PointTask]) -> Iterator[FinishedPoint]:
        """The outcomes as they come."""
        lost: list[PointTask] = []
        yield from self.run(tasks, self.jobs, lost)
        for task in lost:
            again: list[PointTask] = []
            yield from self.run(iter([task]), 1, again)
            if again:
                yield task, PointOutcome(failure=LOST_PROCESS)

    def run(
        self, tasks: Iterator[PointTask], jobs: int, lost: list[PointTask]
    ) -> Iterator[FinishedPoint]:
        """Outcomes until no task is left; those whose process is lost are put aside."""
        while True:
            while len(self.busy) < jobs and (task := next(tasks, None)):
                self.free().give(task)
            if not self.busy:
                return
            for process in self.answering():
                assert process.task is not None
                task, found = process.task, process.take()
                if found is not None:
                    yield task, found
                    continue
                lost.append(task)
                self.processes.remove(process)
                process.end()

    @property
    def busy(self) -> list[PointProcess]:
        """The processes that compute something."""
        return [process for process in self.processes if process.task is not None]

    def free(self) -> PointProcess:
        """A process that computes nothing; a new one if there is none."""
        idle = [process for process in self.processes if process.task is None]
        if not idle:
            idle.append(PointProcess.started(self.scratch))
            self.processes.append(idle[0])
        return idle[0]

    def answering(self) -> list[PointProcess]:
        """Wait until a process has an outcome or is lost; those that have or are."""
        gone = [process for process in self.busy if process.line.closed]
        ready = gone or wait([process.line for process in self.busy])
        return gone or [process for process in self.busy if process.line in ready]
