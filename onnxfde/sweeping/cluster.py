"""Points on a Dask cluster that is there already: the only door to dask.distributed.

Files travel with each task, the outcome comes back, and nothing stays. If a worker is lost, the
scheduler runs its tasks elsewhere; a task that three workers did not survive has no result. If all
are lost and none comes, the sweep ends; what it has computed is kept.
"""

from __future__ import annotations

import logging
import pydoc
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from queue import Empty, Queue
from typing import Any, Self

from onnxfde import __version__
from onnxfde.errors import OptionError, TargetError, in_one_line
from onnxfde.sweeping.local_pool import FinishedPoint, unforeseen
from onnxfde.sweeping.points import PointOutcome, PointTask, run_point

SECONDS_TO_CONNECT = 10
"""How long a scheduler may take to answer. Chosen; not tuned."""
SECONDS_TO_ANSWER = 60.0
"""How long scheduler and workers may take to answer a question. Chosen: workers answer beside what
they compute, even on a busy machine within seconds."""
SECONDS_TO_FETCH = 600.0
"""How long a result may take to come. Chosen: a gigabyte at 2 MB a second."""
SECONDS_WITHOUT_WORKERS = 60.0
"""How long a sweep waits for a worker if all are gone. Chosen: whatever watches over a worker has
started it again by then; what has to be started by hand can wait for the next run."""
SECONDS_TO_LOOK = 1.0
"""How often workers are counted while no point ends. Chosen; not tuned."""
AHEAD = 1
"""Tasks that wait beside one for each thread, so that no worker waits. Chosen: files travel early,
and few of them are held in memory."""
LOST_WORKERS = "the workers that ran it were lost, one after the other (out of memory?)"
GO_ON = "run the same command again to go on"


@dataclass(frozen=True, eq=False)
class ClusterPool:
    """Runs points on the workers of a cluster."""

    address: str
    client: Any

    @classmethod
    def connected(cls, address: str) -> Self:
        """Connect; TargetError if nobody answers, or a worker has another version."""
        try:
            from distributed import Client
        except ImportError:
            raise OptionError(
                "--cluster needs dask.distributed: pip install 'onnxfde[cluster]'"
            ) from None
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # versions are compared below
                client = Client(address, timeout=SECONDS_TO_CONNECT, set_as_default=False)
        except (OSError, ValueError, ImportError) as error:
            reason = in_one_line(error)
            raise TargetError(
                f"--cluster {address}: no Dask scheduler answers there ({reason})"
            ) from None
        found = cls(address, client)
        try:
            found.check_versions()
        except TargetError:
            client.close()
            raise
        return found

    def check_versions(self) -> None:
        """TargetError if there is no worker, or one cannot run our tasks."""
        versions = self.answer(lambda: self.client.run(pydoc.locate, "onnxfde.__version__"))
        if not versions:
            raise TargetError(f"--cluster {self.address}: it has no workers; start some")
        for worker, version in sorted(versions.items()):
            if version != __version__:
                has = f"onnxfde {version}" if version else "no onnxfde"
                raise TargetError(
                    f"--cluster {self.address}: the worker {worker} has {has}, this is onnxfde "
                    f"{__version__}: install the same version everywhere"
                )
        try:
            self.answer(lambda: self.client.get_versions(check=True))
        except ValueError as error:
            raise TargetError(
                f"--cluster {self.address}: versions differ: {in_one_line(error)}"
            ) from None

    def __enter__(self) -> Self:
        """Use the connection."""
        return self

    def __exit__(self, *error: object) -> None:
        """Take back what is under way, and close the connection."""
        self.client.close()

    def answer(self, question: Callable[[], Awaitable[Any]]) -> Any:
        """What the cluster answers; TargetError if it does not."""

        async def asked() -> Any:
            return await question()

        try:
            return self.client.sync(asked, callback_timeout=SECONDS_TO_ANSWER)
        except OSError as error:  # also if it takes too long
            reason = in_one_line(error) or f"no answer for {SECONDS_TO_ANSWER:g} s"
            raise self.lost(reason) from None

    @property
    def threads(self) -> int:
        """How many points the cluster takes at once."""
        return int(sum(self.answer(self.client.nthreads).values()))

    def outcomes(self, tasks: Iterator[PointTask]) -> Iterator[FinishedPoint]:
        """The outcomes as they come."""
        under_way: dict[str, PointTask] = {}
        ended: Queue[Any] = Queue()
        while True:
            room = max(self.threads, 1) + AHEAD
            while len(under_way) < room and (task := next(tasks, None)):
                under_way[self.sent(task, ended).key] = task
            if not under_way:
                return
            future = self.next_of(ended)
            yield under_way.pop(future.key), self.settled(future)
            future.release()

    def sent(self, task: PointTask, ended: Queue[Any]) -> Any:
        """A point that is under way; it is put into the queue when it has ended."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # large tasks: files travel on purpose
            future = self.client.submit(run_point, task.packed(), pure=False)
        future.add_done_callback(ended.put)
        return future

    def next_of(self, ended: Queue[Any]) -> Any:
        """Wait for the next point that ends; TargetError if nobody is left to compute any."""
        seen = time.monotonic()
        while time.monotonic() - seen <= SECONDS_WITHOUT_WORKERS:
            try:
                return ended.get(timeout=SECONDS_TO_LOOK)
            except Empty:
                seen = time.monotonic() if self.threads else seen
        raise TargetError(
            f"--cluster {self.address}: all workers are gone, and none came for "
            f"{SECONDS_WITHOUT_WORKERS:g} s; start some and {GO_ON}"
        )

    def settled(self, future: Any) -> PointOutcome:
        """The outcome of a point that ended."""
        from distributed import CancelledError, KilledWorker

        if future.status == "error":
            error = future.exception(timeout=SECONDS_TO_ANSWER)
            lost = isinstance(error, KilledWorker)
            return PointOutcome(failure=LOST_WORKERS) if lost else unforeseen(error)
        try:
            found: PointOutcome = future.result(timeout=SECONDS_TO_FETCH)
        except (OSError, CancelledError):  # also if it takes too long
            raise self.lost("a result did not come") from None
        return found

    def lost(self, reason: str) -> TargetError:
        """What is said if the cluster does not answer any more."""
        return TargetError(f"--cluster {self.address}: the connection was lost ({reason}); {GO_ON}")
