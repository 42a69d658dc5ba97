"""Targets in place of ε: are they met on rows never seen, how small is the result, at what cost?

`python -m benchmarks.targets` (extra `paper`, the shared folder and FashionMNIST) trains the
networks that are missing, runs every cell that has no result yet, and writes `results.md` from
`results.json`. Latency wants a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import sys
from fnmatch import fnmatch
from pathlib import Path

from benchmarks.common.found_cells import Found
from benchmarks.targets.cells import all_cells, measured
from benchmarks.targets.page import write_page

HERE = Path(__file__).parent


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.targets")
    parser.add_argument("--quick", action="store_true", help="the demo network only")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="GLOB",
                        help="cells by name, e.g. 'resnet8*' or '* | spending'")  # fmt: skip
    parser.add_argument("--fresh", action="store_true", help="run finished cells again")
    parser.add_argument("--page", action="store_true", help="only write the page")
    parser.add_argument("--results", type=Path, default=HERE / "results.json", metavar="FILE",
                        help="where results are kept")  # fmt: skip
    return parser.parse_args()


def main() -> None:
    """Run what is missing, and write the page."""
    options = parsed()
    found = Found.opened(options.results)
    wanted = [cell for cell in all_cells(options.quick)
              if any(fnmatch(cell.key, f"{glob}*") for glob in options.only)]  # fmt: skip
    cells = [] if options.page else list(dict.fromkeys(wanted))
    if options.fresh:
        found.forget(cells)
    for cell in cells:
        if found.get(cell) is None:
            result = measured(cell, found)
            found.add(cell, result)
            print(f"{cell.key}: {result}", file=sys.stderr, flush=True)
    write_page(found, HERE / "results.md")


if __name__ == "__main__":
    main()
