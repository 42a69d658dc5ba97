"""How much error does each size cost, for the usual activations and beside other methods?

`python -m benchmarks.activations` (extras `paper` and `plot`, the shared folder, FashionMNIST, and
`pip install --no-deps onnxsim torch-pruning`) trains the networks that are missing, runs every cell
that has no result yet, and writes `results.md` and `results.png` from `results.json`.
"""

from __future__ import annotations

import argparse
import sys
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import onnx

from benchmarks.activations.autoencoder import VARIANTS, detector_cells, measured_detector
from benchmarks.activations.cells import Cell, all_cells
from benchmarks.activations.methods import METHODS, judged_model
from benchmarks.activations.page import write_page
from benchmarks.activations.plots import plot
from benchmarks.activations.subjects import Suite
from benchmarks.common.fashion import INSTALLED
from benchmarks.common.folders import CACHE
from benchmarks.common.found_cells import Found, Result

HERE = Path(__file__).parent


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.activations")
    parser.add_argument("--quick", action="store_true", help="four small networks only")
    parser.add_argument(
        "--only", nargs="+", default=["*"], metavar="GLOB",
        help="cells by name, e.g. 'lenet*' or '* | minimal* | 50%%'",
    )  # fmt: skip
    parser.add_argument("--fresh", action="store_true", help="run finished cells again")
    parser.add_argument("--page", action="store_true", help="only write the page and the plot")
    parser.add_argument("--nets", type=Path, default=CACHE / "activations", metavar="FOLDER",
                        help="where the trained networks are kept")  # fmt: skip
    parser.add_argument("--fashion", type=Path, default=INSTALLED, metavar="FOLDER",
                        help="FashionMNIST (apt install dataset-fashion-mnist)")  # fmt: skip
    return parser.parse_args()


def chosen_cells(options: argparse.Namespace) -> list[Cell]:
    """The cells that the command line names, each once."""
    cells = [*all_cells(options.quick), *([] if options.quick else detector_cells())]
    wanted = (c for c in cells if any(fnmatch(c.key, f"{glob}*") for glob in options.only))
    return list(dict.fromkeys(wanted))


@cache
def original(suite: Suite, net: str) -> Result:
    """Size and quality of a network as it was trained."""
    subject = suite.subject(net)
    found = judged_model(subject, onnx.load(subject.model))
    return {
        "all_parameters": found["parameters"],
        **({"base": found["score"]} if "score" in found else {}),
    }


def measured(suite: Suite, cell: Cell) -> Result:
    """Run one cell."""
    if cell.net in VARIANTS:
        return measured_detector(cell)
    result = METHODS[cell.method](suite.subject(cell.net), cell.size)
    return {**original(suite, cell.net), **result}


def main() -> None:
    """Run what is missing, and write the page."""
    options = parsed()
    found, suite = Found.opened(HERE / "results.json"), Suite(options.nets, options.fashion)
    cells = [] if options.page else chosen_cells(options)
    if options.fresh:
        found.forget(cells)
    for cell in cells:
        if found.get(cell) is None:
            result = measured(suite, cell)
            found.add(cell, result)
            shown = result.get("failed") or result.get("error", result.get("neurons"))
            print(f"{cell.key}: {shown}, {result['cpu']:.1f} s", file=sys.stderr, flush=True)
    write_page(found, HERE / "results.md")
    plot(found, HERE / "results.png")


if __name__ == "__main__":
    main()
