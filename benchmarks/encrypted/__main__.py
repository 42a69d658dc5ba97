"""What do smaller networks save on encrypted inputs and in proofs?

`python -m benchmarks.encrypted` (extras `he`, `zk`, `paper` and `plot`, and the shared folder)
trains the networks that are missing, makes them smaller, runs every cell that has no result yet,
and writes `results.md` and `results.png` from `results.json`.
"""

from __future__ import annotations

import argparse
import sys
from fnmatch import fnmatch
from pathlib import Path

from benchmarks.common.folders import CACHE
from benchmarks.common.found_cells import Found
from benchmarks.encrypted.measuring import all_cells, measured
from benchmarks.encrypted.page import write_page
from benchmarks.encrypted.plots import plot
from benchmarks.encrypted.subjects import SUBJECTS

HERE = Path(__file__).parent


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.encrypted")
    parser.add_argument("--quick", action="store_true", help="one small network")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="GLOB",
                        help="cells by name, e.g. 'digits*' or '* | proof'")  # fmt: skip
    parser.add_argument("--fresh", action="store_true", help="run finished cells again")
    parser.add_argument("--page", action="store_true", help="only write the page and the plot")
    return parser.parse_args()


def main() -> None:
    """Run what is missing, and write the page."""
    options, folder = parsed(), CACHE / "encrypted"
    folder.mkdir(parents=True, exist_ok=True)
    found = Found.opened(HERE / "results.json")
    wanted = [] if options.page else all_cells(options.quick)
    cells = [c for c in wanted if any(fnmatch(c.key, f"{glob}*") for glob in options.only)]
    if options.fresh:
        found.forget(cells)
    for cell in cells:
        if found.get(cell) is None:
            found.add(cell, measured(cell, SUBJECTS[cell.net](folder), folder))
            print(cell.key, file=sys.stderr, flush=True)
    write_page(found, HERE / "results.md")
    plot(found, HERE / "results.png")


if __name__ == "__main__":
    main()
