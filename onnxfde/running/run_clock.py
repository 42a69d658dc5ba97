"""How long models may run: a model that does not end is stopped.

    allowed  =  RUN_SECONDS for all runs together  +  multiply-adds of these runs / SLOWEST_SPEED
                +  START_SECONDS for each of them

The first part covers what the estimate of the work does not see, such as loops. It is shared by
everything that one command runs, and after one run was stopped, no other is started.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from onnxfde.errors import RunStopped

RUN_SECONDS = 4.0
"""Seconds that all runs of one command may take beyond their estimated work. Chosen: small models
take well under a second, and a loop without an end should not be waited for; not tuned."""
SLOWEST_SPEED = 2e8
"""Multiply-adds per second that are expected of the slowest machine. Chosen: a small board without
vector instructions; not tuned."""
START_SECONDS = 5e-3
"""Seconds that a run takes beside its multiply-adds. Chosen: far above what it is, because
models that take one row at a time are run thousands of times, on busy machines too; not tuned."""
WAITING_SECONDS = 60.0
"""Seconds that a run may wait for a busy machine: it is its own work that counts. Chosen."""


@dataclass(eq=False)
class RunClock:
    """The time that is left for running models."""

    left: float = field(default_factory=lambda: RUN_SECONDS)
    stopped: bool = False
    most: float = field(init=False)
    """What is left at first: runs that are quicker than expected make up for others."""

    def __post_init__(self) -> None:
        """Begin with all of it."""
        self.most = self.left

    @contextmanager
    def watching(self, stop: Callable[[], None], work: float, runs: int = 1) -> Iterator[None]:
        """Call `stop` if these runs take much longer than their work explains."""
        if self.stopped:
            raise RunStopped("it was stopped before because it took too long")
        expected = work / SLOWEST_SPEED + runs * START_SECONDS
        allowed = min(self.left + expected, threading.TIMEOUT_MAX)
        watch = Watch(stop, allowed)
        watch.look()
        try:
            yield
        except RunStopped:
            self.stopped = True
            raise RunStopped(f"running it was stopped after {max(allowed, 0.0):.0f} s") from None
        finally:
            watch.end()
            self.left = min(self.left + expected - watch.taken, self.most)


@dataclass(eq=False)
class Watch:
    """Stops a run that takes longer than is allowed."""

    stop: Callable[[], None]
    allowed: float
    start: float = field(default_factory=time.monotonic)
    cpu: float = field(default_factory=time.process_time)
    timer: threading.Timer | None = None
    ended: bool = False

    @property
    def taken(self) -> float:
        """Seconds that this process worked since the start; waiting counts after a while."""
        passed = time.monotonic() - self.start
        return max(min(passed, time.process_time() - self.cpu), passed - WAITING_SECONDS)

    def look(self) -> None:
        """Stop the run if its time is over, or look again when it may be."""
        left = self.allowed - self.taken
        if self.timer is not None and left <= 0:
            self.stop()
        elif not self.ended:
            self.timer = threading.Timer(max(left, START_SECONDS), self.look)
            self.timer.daemon = True
            self.timer.start()

    def end(self) -> None:
        """Look no more."""
        self.ended = True
        if self.timer is not None:
            self.timer.cancel()
