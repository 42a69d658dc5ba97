"""The paper's evaluation with one command: its tables and figures, its methods beside ours.

    python -m benchmarks.paper [synthetic|public] [--system NAME] [--variant 1|2|3] [--seeds N]
                               [--quick] [--data-dir DIR] [--out DIR]

Networks are trained once and kept. Each result goes to `results.csv` as soon as it is known, so a
killed run continues where it stopped. At the end `RESULTS.md` and the plots are written from all
results. `--quick` is variant 1 with 3 seeds; everything takes hours. Needs the extras `paper` and
`plot`, and the shared folder or `--data-dir` for public data.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.common import paper_networks
from benchmarks.common.layers import widths
from benchmarks.common.paper_systems import SYSTEMS
from benchmarks.common.scores import grp_percent, on_test_rows, quadratic_limit
from benchmarks.paper import plots, report
from benchmarks.paper.methods import COUNTED, METHODS, Network
from benchmarks.paper.published import Row, half, rows_of
from benchmarks.paper.store import Result, Store, network_hash

FOLDER = Path(__file__).parent
SEEDS = {False: 10, True: 30}
"""The paper's numbers of seeds, for simulated systems (False) and public data (True)."""
QUICK_SEEDS = 3
"""Seeds of `--quick`; chosen."""


class Task(NamedTuple):
    """A network to measure."""

    system: str
    variant: int
    seed: int

    def __str__(self) -> str:
        """For the progress bar."""
        return f"{self.system} variant {self.variant} seed {self.seed}"


class Step(NamedTuple):
    """A method at a configuration."""

    method: str
    row: Row


def steps(system: str, variant: int) -> list[Step]:
    """What is measured on a network, apart from the network itself."""
    rows = rows_of(system, variant)[1:]
    found = [Step(method, row) for row in rows for method in METHODS]
    if variant == 1:
        found += [Step(method, half(system)) for method in COUNTED]
    return found


@dataclass(frozen=True)
class Run:
    """Measures networks; looks results up in the store and adds new ones to it."""

    store: Store
    progress: Progress
    data_dir: Path | None

    def measure(self, task: Task) -> None:
        """Train a network unless it is there, and measure what is not measured yet."""
        todo = steps(task.system, task.variant)
        bar = self.progress.add_task(str(task), total=len(todo) + 1)

        def tell(message: str) -> None:
            self.progress.update(bar, description=f"{task}: {message}")

        net = paper_networks.trained(*task, data_dir=self.data_dir, tell=tell)
        digest, rows = network_hash(net.path), net.rows
        network = Network(net.path, rows.x_train, rows.limits)
        if (*task, digest, "base", "C1") not in self.store:
            error, neurons = on_test_rows(network.model, rows), slashed(widths(network.model))
            if not SYSTEMS[task.system].public and task.variant == 1:
                limit = quadratic_limit(rows)
                self.store.add(Result(*task, digest, "quadratic", "C1", "", 100.0, limit))
            self.store.add(Result(*task, digest, "base", "C1", neurons, 100.0, error))
        self.progress.advance(bar)
        for method, row in todo:
            tell(f"{method} {row.config}")
            if (*task, digest, method, row.config) not in self.store:
                model = METHODS[method](network, row)
                left, grp = slashed(widths(model)), grp_percent(model, network.model)
                error = on_test_rows(model, rows)
                self.store.add(Result(*task, digest, method, row.config, left, grp, error))
            self.progress.advance(bar)
        self.progress.remove_task(bar)


def slashed(counts: list[int]) -> str:
    """Neurons of each square layer, as `results.csv` has them."""
    return "/".join(map(str, counts))


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.paper", description="The paper's evaluation, and ours beside it."
    )
    parser.add_argument("kind", nargs="?", choices=("synthetic", "public"), help="only these")
    parser.add_argument("--system", action="append", choices=tuple(SYSTEMS), help="only this one")
    parser.add_argument("--variant", type=int, action="append", choices=(1, 2, 3))
    parser.add_argument("--seeds", type=int, help="networks of each kind (10, public data 30)")
    parser.add_argument("--quick", action="store_true", help="variant 1 with 3 seeds")
    parser.add_argument("--data-dir", type=Path, help="public data (../shared/data if it is there)")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of results and tables")
    options = parser.parse_args(arguments)
    if options.seeds is not None and options.seeds < 1:
        parser.error("--seeds must be at least 1")
    return options


def tasks(options: argparse.Namespace) -> Iterator[Task]:
    """The networks to measure: all systems with the first seed, then all with the next."""
    chosen = [
        system
        for name, system in SYSTEMS.items()
        if name in (options.system or SYSTEMS)
        and system.public == (options.kind == "public" if options.kind else system.public)
    ]
    quick = QUICK_SEEDS if options.quick else None
    counts = {s.name: options.seeds or quick or SEEDS[s.public] for s in chosen}
    for variant in options.variant or ((1,) if options.quick else (1, 2, 3)):
        fitting = [s for s in chosen if variant == 1 or not s.public]
        for seed in range(max(counts.values(), default=0)):
            yield from (Task(s.name, variant, seed) for s in fitting if seed < counts[s.name])


def columns() -> Progress:
    """Progress bars with what is being done, how far it is, and the time so far."""
    bars = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(TextColumn("{task.description}"), *bars)


def hush() -> None:
    """Keep warnings of torch.onnx out of the progress bars."""
    warnings.simplefilter("ignore", FutureWarning)
    exporter = "torch.onnx._internal.exporter._registration"
    logging.getLogger(exporter).setLevel(logging.ERROR)


def main() -> None:
    """Measure what is missing, then write tables and plots."""
    options = parsed()
    hush()
    options.out.mkdir(parents=True, exist_ok=True)
    store, todo = Store(options.out / "results.csv"), list(tasks(options))
    with columns() as progress:
        everything = progress.add_task("networks", total=len(todo))
        run = Run(store, progress, options.data_dir)
        for task in todo:
            run.measure(task)
            progress.advance(everything)
    report.write(store, options.out)
    plots.write(store, options.out)
    print(f"{options.out / 'RESULTS.md'} and the plots beside it are written")


if __name__ == "__main__":
    main()
