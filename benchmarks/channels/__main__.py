"""How much accuracy do fewer channels cost, beside other methods, and what do they save?

`python -m benchmarks.channels` (extras `paper` and `plot`, the shared folder, FashionMNIST, and
`pip install --no-deps onnxsim torch-pruning`) trains the networks that are missing, runs every cell
that has no result yet, and writes `results.md` and `results.png` from `results.json`. Other parts:
`--part latency` measures times and ARM instructions of some of the models, on a machine that does
nothing else; `deployed` 8 bits and .ort; `large` a network of the size of ResNet50.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from fnmatch import fnmatch
from pathlib import Path

from benchmarks.channels.cells import Cell, all_cells
from benchmarks.channels.deployed import DEPLOYED_CELLS, DeployedCell, measured_deployed
from benchmarks.channels.large import LARGE_CELLS, LargeCell, measured_large
from benchmarks.channels.latency import LatencyCell, latency_cells, measured_latency
from benchmarks.channels.methods import measured
from benchmarks.channels.page import write_page
from benchmarks.channels.plots import plot
from benchmarks.channels.subjects import subject
from benchmarks.common.fashion import INSTALLED
from benchmarks.common.folders import CACHE
from benchmarks.common.found_cells import Found, Result

HERE = Path(__file__).parent
AnyCell = Cell | LatencyCell | DeployedCell | LargeCell
PARTS: dict[str, Callable[[bool], Iterable[AnyCell]]] = {
    "accuracy": all_cells,
    "latency": lambda _: latency_cells(),
    "deployed": lambda _: DEPLOYED_CELLS,
    "large": lambda _: LARGE_CELLS,
}
"""The cells of each part; true: those of `--quick`."""


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.channels")
    parser.add_argument("--quick", action="store_true", help="one small network, one draw")
    parser.add_argument(
        "--only", nargs="+", default=["*"], metavar="GLOB",
        help="cells by name, e.g. 'resnet8*' or '* | minimal* | 50%%*'",
    )  # fmt: skip
    parser.add_argument("--part", choices=PARTS, default="accuracy",
                        help="what is measured; latency wants an idle machine")  # fmt: skip
    parser.add_argument("--fresh", action="store_true", help="run finished cells again")
    parser.add_argument("--page", action="store_true", help="only write the page and the plot")
    parser.add_argument("--nets", type=Path, default=CACHE / "channels", metavar="FOLDER",
                        help="where trained networks and smaller models are kept")  # fmt: skip
    parser.add_argument("--fashion", type=Path, default=INSTALLED, metavar="FOLDER",
                        help="FashionMNIST (apt install dataset-fashion-mnist)")  # fmt: skip
    return parser.parse_args()


def chosen_cells(options: argparse.Namespace) -> list[AnyCell]:
    """The cells that the command line names, each once."""
    cells = PARTS[options.part](options.quick)
    wanted = (c for c in cells if any(fnmatch(c.key, f"{glob}*") for glob in options.only))
    return list(dict.fromkeys(wanted))


def run(cell: AnyCell, options: argparse.Namespace) -> Result:
    """Measure one cell."""
    if isinstance(cell, LargeCell):
        return measured_large(cell)
    net = subject(cell.net, options.nets, options.fashion)
    if isinstance(cell, DeployedCell):
        return measured_deployed(net, cell)
    if isinstance(cell, LatencyCell):
        return measured_latency(net, cell, options.nets / "models")
    return measured(net, cell, options.nets / "models")


def main() -> None:
    """Run what is missing, and write the page."""
    options = parsed()
    found = Found.opened(HERE / "results.json")
    cells = [] if options.page else chosen_cells(options)
    if options.fresh:
        found.forget(cells)
    for cell in cells:
        if found.get(cell) is None:
            result = run(cell, options)
            found.add(cell, result)
            known = {name: result[name] for name in ("failed", "score", "cpu") if name in result}
            print(f"{cell.key}: {known}", file=sys.stderr, flush=True)
    write_page(found, HERE / "results.md")
    plot(found, HERE / "results.png")


if __name__ == "__main__":
    main()
