"""Points on a Dask cluster of two worker processes on this machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onnxfde.errors import TargetError
from onnxfde.sweeping import cluster as cluster_module
from onnxfde.sweeping.cluster import ClusterPool
from onnxfde.sweeping.points import PointOutcome, PointTask
from tests.command.running import run
from tests.sweeping.ladders import Here, ladder_for, saved_models, swept_into
from tests.sweeping.test_sweep import rows_in, without_times

distributed = pytest.importorskip(
    "distributed", reason="dask.distributed is missing: pip install 'onnxfde[cluster]'"
)
pytestmark = pytest.mark.filterwarnings("ignore")  # what libraries of a cluster warn about


@pytest.fixture(scope="module")
def workers() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address=None,
        death_timeout=60,
    ) as found:
        yield found


def test_a_cluster_gives_the_same_table_even_if_a_worker_is_lost(
    workers: Any, tmp_path: Path
) -> None:
    models = saved_models(tmp_path, 3)
    ladder = ladder_for(models, tmp_path / "data.npz")
    swept_into(tmp_path / "here", ladder, Here())
    with ClusterPool.connected(workers.scheduler_address) as pool:
        losing = Losing(pool)
        swept_into(tmp_path / "there", ladder, losing)
    assert losing.killed
    assert without_times(tmp_path / "there") == without_times(tmp_path / "here")


class Losing:
    """A pool that loses a worker after the first outcome."""

    def __init__(self, pool: ClusterPool) -> None:
        self.pool, self.killed = pool, 0

    def outcomes(self, tasks: Iterator[PointTask]) -> Iterator[tuple[PointTask, PointOutcome]]:
        for found in self.pool.outcomes(tasks):
            if not self.killed:
                self.killed = next(iter(self.pool.client.run(os.getpid).values()))
                os.kill(self.killed, signal.SIGKILL)
            yield found


def test_a_sweep_without_workers_ends_and_goes_on_with_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.sweeping.workers import worker_of

    monkeypatch.setattr(cluster_module, "SECONDS_WITHOUT_WORKERS", 2)
    ladder = ladder_for(saved_models(tmp_path, 2), tmp_path / "data.npz")
    out, none = tmp_path / "out", {"n_workers": 0, "dashboard_address": None}
    with distributed.LocalCluster(host="127.0.0.1", **none) as found:
        address = found.scheduler_address
        with (
            worker_of(address) as only,
            ClusterPool.connected(address) as pool,
            pytest.raises(TargetError, match=r"all workers are gone.* run the same command again"),
        ):
            swept_into(out, ladder, Orphaned(pool, only.pid))
        kept = [row["size"] for row in rows_in(out)]
        with worker_of(address), ClusterPool.connected(address) as pool:
            counting = Counting(pool)
            swept_into(out, ladder, counting)
    assert len(kept) > 1
    assert counting.computed == 6 - (len(kept) - 1)
    swept_into(tmp_path / "here", ladder, Here())
    assert without_times(out) == without_times(tmp_path / "here")


class Counting:
    """A pool that counts what comes out of it."""

    def __init__(self, pool: ClusterPool) -> None:
        self.pool, self.computed = pool, 0

    def outcomes(self, tasks: Iterator[PointTask]) -> Iterator[tuple[PointTask, PointOutcome]]:
        for found in self.pool.outcomes(tasks):
            self.computed += 1
            yield found


class Orphaned(Counting):
    """A pool that loses its only worker after the first outcome."""

    def __init__(self, pool: ClusterPool, worker: int) -> None:
        super().__init__(pool)
        self.worker = worker

    def outcomes(self, tasks: Iterator[PointTask]) -> Iterator[tuple[PointTask, PointOutcome]]:
        for found in super().outcomes(tasks):
            if self.computed == 1:
                os.kill(self.worker, signal.SIGKILL)
            yield found


def test_another_version_is_refused_before_anything_is_sent(
    workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "__version__", "9.9.9")
    with pytest.raises(TargetError, match=r"has onnxfde .*, this is onnxfde 9\.9\.9: install"):
        ClusterPool.connected(workers.scheduler_address)


def test_a_cluster_without_workers_is_refused() -> None:
    with (
        distributed.LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=None) as empty,
        pytest.raises(TargetError, match="has no workers"),
    ):
        ClusterPool.connected(empty.scheduler_address)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://x", "127.0.0.1:1"])
def test_nobody_there_is_one_line(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "SECONDS_TO_CONNECT", 1)
    (model,) = saved_models(tmp_path, 1)
    done = run("sweep", model, "--out", tmp_path / "out", "--cluster", address)
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.output
    assert f"--cluster {address}: no Dask scheduler answers there" in done.stderr
