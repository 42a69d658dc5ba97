"""What is left of networks that people deploy, by real inputs and real scores?

`python -m benchmarks.real [MODEL…]` (extra `real`, the shared folder, apt and pip with registries)
makes the inputs that are missing, runs every cell that has no result for the code as it is, and
writes `results.md` from `results.json`. `--quick`: four networks, two sizes; only printed, beside
the results that are checked in.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.common import table
from benchmarks.common.folders import CACHE
from benchmarks.common.found_cells import Found
from benchmarks.real.cells import QUICK
from benchmarks.real.page import quick_rows, write_page
from benchmarks.real.running import Bench, run_missing
from benchmarks.real.subject import Subject

HERE = Path(__file__).parent
QUICK_HEADER = "network | options | multiply-adds | score | CPU seconds"


def parsed(words: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real")
    parser.add_argument("nets", nargs="*", metavar="MODEL", help="only these networks")
    parser.add_argument("--quick", action="store_true",
                        help="four networks, two sizes; nothing is written")  # fmt: skip
    parser.add_argument("--only", nargs="+", default=["*"], metavar="GLOB",
                        help="cells by name, e.g. '* | --max-macs 75%%*'")  # fmt: skip
    parser.add_argument("--fresh", action="store_true", help="run finished cells again")
    parser.add_argument("--page", action="store_true", help="only write the page")
    parser.add_argument("--subjects", default="benchmarks.real.subjects", metavar="MODULE",
                        help="a module with a tuple SUBJECTS")  # fmt: skip
    parser.add_argument("--results", type=Path, default=HERE / "results.json", metavar="FILE",
                        help="where results are kept; the page is written beside it")  # fmt: skip
    parser.add_argument("--cache", type=Path, default=CACHE / "real", metavar="FOLDER",
                        help="where inputs and models are kept")  # fmt: skip
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> None:
    """Run what is missing, and write the page."""
    options = parsed(words)
    subjects = import_module(options.subjects).SUBJECTS
    known = [subject.name for subject in subjects]
    if unknown := set(options.nets) - set(known):
        raise SystemExit(f"no such network: {', '.join(sorted(unknown))}; {', '.join(known)}")
    nets = [n for n in known if n in (options.nets or (QUICK if options.quick else known))]
    bench, found = Bench(options.subjects, options.cache), Found.opened(options.results)
    if options.quick:
        quick(bench, [subject for subject in subjects if subject.name in nets], found)
    else:
        if options.fresh:
            found.forget(cell for net in nets for cell in bench.cells(net))
        if not options.page:
            run_missing(bench, nets, found, options.only)
        write_page(found, subjects, options.results.with_suffix(".md"))


def quick(bench: Bench, subjects: list[Subject], kept: Found) -> None:
    """Print a few results beside those that are checked in."""
    with TemporaryDirectory() as folder:
        found = Found(Path(folder) / "results.json")
        few = Bench(bench.module, bench.cache, timed=False, quick=True)
        run_missing(few, [subject.name for subject in subjects], found)
        print(table.Section("", QUICK_HEADER, quick_rows(found, kept, subjects)).text())


if __name__ == "__main__":
    main()
