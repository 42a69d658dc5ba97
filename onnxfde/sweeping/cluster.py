"""Points on a Dask cluster that is there already: the only door to dask.distributed.

Files travel with each task, the outcome comes back, and nothing stays. If a worker is lost, the
scheduler runs its tasks elsewhere; a task that three workers did not survive has no result.
"""

from __future__ import annotations

import logging
import pydoc
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from onnxfde import __version__
from onnxfde.errors import OptionError, TargetError, in_one_line
from onnxfde.sweeping.local_pool import FinishedPoint, unforeseen
from onnxfde.sweeping.points import PointOutcome, PointTask, run_point

SECONDS_TO_CONNECT = 10
"""How long a scheduler may take to answer. Chosen; not tuned."""
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
        versions = self.client.run(pydoc.locate, "onnxfde.__version__")
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
            self.client.get_versions(check=True)
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

    @property
    def threads(self) -> int:
        """How many points the cluster takes at once."""
        return max(int(sum(self.client.nthreads().values())), 1)

    def outcomes(self, tasks: Iterator[PointTask]) -> Iterator[FinishedPoint]:
        """The outcomes as they come."""
        from distributed import as_completed

        under_way: dict[str, PointTask] = {}
        finished = as_completed(loop=self.client.loop)

        def send() -> None:
            while len(under_way) < self.threads + AHEAD and (task := next(tasks, None)):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # large tasks: files travel on purpose
                    future = self.client.submit(run_point, task.packed(), pure=False)
                under_way[future.key] = task
                finished.add(future)

        send()
        for future in finished:
            yield under_way.pop(future.key), self.settled(future)
            future.release()
            send()

    def settled(self, future: Any) -> PointOutcome:
        """The outcome of a point that ended."""
        from distributed import KilledWorker

        if future.status == "finished":
            found: PointOutcome = future.result()
            return found
        if future.status != "error":
            raise TargetError(f"--cluster {self.address}: the connection was lost; {GO_ON}")
        error = future.exception()
        if isinstance(error, KilledWorker):
            return PointOutcome(failure=LOST_WORKERS)
        return unforeseen(error)
