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
from tests.sweeping.test_sweep import without_times

distributed = pytest.importorskip(
    "distributed", reason="dask.distributed is missing: pip install 'onnxfde[cluster]'"
)
pytestmark = pytest.mark.filterwarnings("ignore")  # what libraries of a cluster warn about


@pytest.fixture(scope="module")
def workers() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
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
