"""Sweeps: do processes and a cluster give the same table, how fast, and in how much memory?

Three networks at seven sizes (21 points) with one process, two processes and two workers of a Dask
cluster on this machine; the same with a worker killed, and with the sweep killed and started again;
what is said if there is no cluster or it has another version; 50 small models at once.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.common.dense_networks import DenseTask, trained_network
from benchmarks.common.fashion import fashion_rows
from benchmarks.common.folders import CACHE, shared_file
from benchmarks.common.processes import load_note
from benchmarks.common.random_network import random_network
from benchmarks.common.table import Section, text, write_sections
from benchmarks.common.torch_training import export_network
from onnxfde.demo import demo_data, demo_model
from onnxfde.numbers import Array
from onnxfde.pages.sweep_rows import TIMES

LENET = DenseTask("lenet", "fashion", (300, 100), "relu", epochs=3, batch=256, rate=0.001)
ROWS = 1000
"""Rows of data for LeNet and ResNet8, of which optimize keeps a fifth for its verdict."""
MANY = 50
"""Small models at once."""
KEEPING = {"MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**28)}
"""With these variables a worker keeps memory that is freed. Dask's own setting gives it back to the
system at once, and large arrays, which come and go, are then slow to make."""
CHROMIUM = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--virtual-time-budget=2000")  # fmt: skip


def make_networks(folder: Path, quick: bool) -> None:
    """The square network of the demo, LeNet-300-100 and ResNet8, with their data."""
    shutil.copy(demo_model(), folder / "square.onnx")
    shutil.copy(demo_data(), folder / "square.npz")
    if quick:
        return
    rows, cached = fashion_rows(), CACHE / "sweep-lenet.onnx"
    if not cached.exists():
        cached.parent.mkdir(exist_ok=True)
        export_network(trained_network(LENET, rows), rows.x_train[:2], cached)
    shutil.copy(cached, folder / "lenet.onnx")
    name = onnx.load(cached).graph.input[0].name
    save_rows(folder / "lenet.npz", **{name: rows.x_test[:ROWS], "y": rows.y_test[:ROWS]})
    shutil.copy(shared_file("models/resnet8_cifar10.onnx"), folder / "resnet8.onnx")
    images = np.load(shared_file("data/cifar10_dev.npz"))
    name = onnx.load(folder / "resnet8.onnx").graph.input[0].name
    pixels = images["x"][:ROWS].astype(np.float32)
    save_rows(folder / "resnet8.npz", **{name: pixels, "y": images["y"][:ROWS].astype(np.int64)})


def save_rows(file: Path, **arrays: Array) -> None:
    """Write data as users have it."""
    with file.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **arrays)


@dataclass
class Run:
    """A sweep that was run in a process of its own."""

    out: Path
    seconds: float = 0.0
    said: str = ""
    code: int = 0
    memory: list[tuple[int, float, float]] = field(default_factory=list)
    """Points that were done, and megabytes of the command and of its processes then."""

    @property
    def points(self) -> int:
        """How many points are written down."""
        file = self.out / "points.jsonl"
        return file.read_text().count('"row": {"model"') if file.exists() else 0

    def table(self) -> list[dict[str, str]]:
        """The rows without times."""
        with (self.out / "sweep.csv").open(newline="") as stream:
            rows = list(csv.DictReader(stream))
        return [{k: v for k, v in row.items() if k not in TIMES} for row in rows]


def sweep_words(models: str, out: Path, *words: str) -> list[str]:
    """The words of a command."""
    base = [sys.executable, "-m", "onnxfde", "sweep", models, "--out", str(out)]
    return [*base, "--quotient", "refit", "--no-latency", *words]


def run_sweep(
    models: str, out: Path, *words: str, meanwhile: Callable[[Run, Any], None] | None = None
) -> Run:
    """Run a sweep, and do something meanwhile, four times a second."""
    run, start = Run(out), time.perf_counter()
    process = subprocess.Popen(
        sweep_words(models, out, *words),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    while process.poll() is None and meanwhile is not None:
        meanwhile(run, process)
        time.sleep(0.25)
    run.said = process.communicate()[1]
    run.code, run.seconds = process.returncode, time.perf_counter() - start
    return run


@contextmanager
def environment(more: dict[str, str]) -> Iterator[None]:
    """Processes that are started now have these variables."""
    os.environ.update(more)
    try:
        yield
    finally:
        for name in more:
            del os.environ[name]


@contextmanager
def cluster(workers: int = 2, keeping: bool = False) -> Iterator[Any]:
    """Worker processes on this machine, with one thread each; `keeping` memory that is freed."""
    from distributed import LocalCluster

    with (
        environment(KEEPING if keeping else {}),
        LocalCluster(
            n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as found,
    ):
        yield found


@contextmanager
def worker_with(package: Path, address: str) -> Iterator[None]:
    """A worker that finds another onnxfde in a folder, as soon as it has joined a cluster."""
    from distributed import Client

    command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1"]
    process = subprocess.Popen(
        [*command, "--no-nanny", "--no-dashboard"],
        cwd=package,
        env={**os.environ, "PYTHONPATH": str(package)},
        stderr=subprocess.DEVNULL,
    )
    try:
        with Client(address, set_as_default=False) as client:
            client.wait_for_workers(1, timeout=60)
        yield
    finally:
        process.terminate()
        process.wait(60)


def kill_a_worker(found: Any, after: int) -> Callable[[Run, Any], None]:
    """Kills one worker as soon as so many points are done."""
    killed: list[int] = []

    def meanwhile(run: Run, _: Any) -> None:
        if not killed and run.points >= after:
            killed.append(next(iter(found.workers.values())).pid)
            os.kill(killed[0], signal.SIGKILL)

    return meanwhile


def kill_the_sweep(after: int) -> Callable[[Run, Any], None]:
    """Kills the command itself as soon as so many points are done."""

    def meanwhile(run: Run, process: Any) -> None:
        if run.points >= after:
            process.kill()

    return meanwhile


def watch_memory(run: Run, process: Any) -> None:
    """Notes how much memory a sweep and its processes have (Linux)."""
    own = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        children = sum(megabytes(int(pid)) for pid in own.read_text().split())
        run.memory.append((run.points, megabytes(process.pid), children))
    except FileNotFoundError:  # it has just ended
        return


def megabytes(pid: int) -> float:
    """The resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def compared(run: Run, first: Run) -> str:
    """Whether a table is that of the first run."""
    return "the same" if run.table() == first.table() else "DIFFERENT"


def speed_rows(folder: Path, models: str) -> list[list[object]]:
    """One process, two, and a cluster, undisturbed and disturbed."""

    def swept(name: str, *words: str, **more: Any) -> Run:
        data = ("--data", f"{models}/{{name}}.npz")
        return run_sweep(models, folder / name, *data, *words, **more)

    def row(name: str, run: Run, note: str = "") -> list[object]:
        speedup = f"{one.seconds / run.seconds:.2f}" if run.seconds and not note else "–"
        return [name, run.points, f"{run.seconds:.1f}", speedup, compared(run, one), note]

    one = swept("one", "--jobs", "1")
    rows = [row("`--jobs 1`", one), row("`--jobs 2`", swept("two", "--jobs", "2"))]
    half = one.points // 2
    with cluster(keeping=True) as found:
        keeping = swept("keeping", "--cluster", found.scheduler_address)
        rows.append(row("two workers that keep freed memory", keeping))
    with cluster() as found:
        address = ("--cluster", found.scheduler_address)
        rows.append(row("two workers, as Dask starts them", swept("cluster", *address)))
        lost = swept("lost", *address, meanwhile=kill_a_worker(found, half))
        rows.append(row("two workers, one killed in the middle", lost, "a worker was killed"))
        cut = swept("cut", *address, meanwhile=kill_the_sweep(half))
        kept = cut.points
        again = swept("cut", *address)
        note = f"killed (exit code {cut.code}) with {kept} points done, {computed(again)} after it"
        rows.append(row("two workers, killed and started again", again, note))
    return rows


def computed(run: Run) -> int:
    """How many points a run computed itself."""
    return sum(bool(re.search(r"\(\d+\.\d s\)$|: --max", line)) for line in run.said.splitlines())


def message_rows(folder: Path, models: str) -> list[list[object]]:
    """What is said where there is no cluster, or one with another version."""
    nobody = run_sweep(models, folder / "nobody", "--cluster", "tcp://127.0.0.1:1")
    fake = folder / "other" / "onnxfde"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text('__version__ = "0.0.1"\n')
    with cluster(0) as found, worker_with(fake.parent, found.scheduler_address):
        other = run_sweep(models, folder / "version", "--cluster", found.scheduler_address)
    said = re.sub(r"127\.0\.0\.1:\d{2,}", "127.0.0.1:…", other.said.strip())
    return [
        ["nobody answers", nobody.code, nobody.said.strip()],
        ["another version", other.code, said],
    ]


def many_rows(folder: Path, count: int) -> list[list[object]]:
    """Small models at once: memory in the first and in the last quarter, and the index page."""
    nets = folder / "many"
    nets.mkdir()
    for number in range(count):
        model = random_network(8, 16 + number % 8, 3)
        model.graph.name = f"g{number}"
        onnx.save(model, nets / f"net{number:02}.onnx")
    words = ("--sizes", "75%,50%,25%", "--jobs", "2")
    run = run_sweep(str(nets), folder / "many-out", *words, meanwhile=watch_memory)
    total = 3 * count
    quarters = [
        [entry for entry in run.memory if low <= entry[0] <= high]
        for low, high in ((total // 20, total // 4), (total - total // 4, total))
    ]
    cells = [[f"{max(e[i] for e in q):.0f}" if q else "–" for q in quarters] for i in (1, 2)]
    return [
        [f"{count} models, {run.points} points", f"{run.seconds:.1f}", ", then ".join(cells[0]),
         ", then ".join(cells[1]), opened_index(folder / "many-out" / "index.html")],
    ]  # fmt: skip


def opened_index(page: Path) -> str:
    """How many rows a browser shows of the index."""
    browser = shutil.which("chromium")
    if browser is None:
        return "no chromium here"
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, *CHROMIUM, f"--user-data-dir={profile}", "--dump-dom", page.as_uri()]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return f"opens, {found.count('</svg>')} curves, {page.stat().st_size / 1e3:.0f} kB"


def import_rows() -> list[list[object]]:
    """How long imports take in a fresh process, less an empty one."""

    def seconds(code: str) -> float:
        taken = []
        for _ in range(7):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            taken.append(time.perf_counter() - start)
        return statistics.median(taken)

    empty = seconds("pass")
    needed = seconds("import onnxfde.pipeline") - empty
    rows: list[list[object]] = [["`onnxfde.pipeline`, which every page needs", f"{needed:.3f}"]]
    for module in ("matplotlib.figure", "onnxfde.pages.report_page"):
        both = seconds(f"import onnxfde.pipeline, {module}") - empty
        rows.append([f"`{module}` on top of it", f"{max(both - needed, 0):.3f}"])
    return rows


def main() -> None:
    """Run everything and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="keep models and results in this folder")
    parser.add_argument("--quick", action="store_true", help="one network; writes no page")
    given = parser.parse_args()
    note = load_note()
    with tempfile.TemporaryDirectory(prefix="onnxfde-sweep-") as name:
        folder = given.keep or Path(name)
        nets = folder / "nets"
        nets.mkdir(parents=True)
        make_networks(nets, given.quick)
        sections = [
            Section(
                "The same table, however it is made",
                "how | points | seconds | speed-up | table | disturbed by",
                speed_rows(folder, str(nets)),
            ),
            Section("What is said", "where | exit code | message", message_rows(folder, str(nets))),
            Section(
                "Many models at once",
                "what | seconds | MB of the command, first and last quarter | MB of its two "
                "processes | index page",
                many_rows(folder, 5 if given.quick else MANY),
            ),
            Section("What a plotting library would cost", "import | seconds", import_rows()),
        ]
    note += " `--quotient refit`, one thread each."
    if given.quick:
        print(text(__file__, "Sweeps", sections, note))
    else:
        write_sections(__file__, "Sweeps", sections, note)


if __name__ == "__main__":
    main()
