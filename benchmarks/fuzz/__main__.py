"""Does any file or command line end in a traceback, a hang, lost data or a boundless run?

`python -m benchmarks.fuzz` tries 50,000 inputs: mutations of about 60 small models, byte by byte
and field by field, of data files and of command lines, and hand-made traps. Each is determined by a
name and a number; `--only NAME:NUMBER --keep FOLDER` makes one again and keeps its files, and
`--only NAME` tries all traps, or the first inputs, of that name. `--package FOLDER` tests the
`onnxfde` of another checkout. The page `fuzz.md` is written unless `--only` or `--no-page` is
given. The exit code is 1 if anything was found.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

INPUTS = 50_000
"""How many mutations are tried besides the traps, unless told otherwise."""
SOME = 50
"""How many inputs `--only NAME` tries."""


def main() -> int:
    """Try inputs, show what was found, write the page."""
    options = parsed()
    if options.package is not None:
        sys.path.insert(0, str(options.package.resolve()))
    os.environ["ORT_DISABLE_TELEMETRY"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    import onnxfde
    from benchmarks.common.processes import load_note
    from benchmarks.fuzz import engine, page, workers

    engine.load_everything()
    seeds = wanted(options.only) if options.only else all_seeds(options)
    print(f"testing {Path(onnxfde.__file__).parent}, {len(seeds):,} inputs", flush=True)
    if options.keep is not None:
        return show_one(seeds[0], options.keep)
    deadline, start, load = time.monotonic() + options.seconds, time.monotonic(), load_note()
    found = page.watched(workers.outcomes(seeds, options.jobs, deadline), len(seeds))
    if options.only or options.no_page:
        print(page.finds(found))
    else:
        page.write(found, time.monotonic() - start, options.jobs, load)
    return int(any(outcome.problems for outcome in found))


def parsed() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=INPUTS, help="mutations besides the traps")
    parser.add_argument("--first", type=int, default=0, help="the number to begin with")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--quick", action="store_true", help="one command line per trap")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--only", default="", help="NAME or NAME:NUMBER, separated by commas")
    parser.add_argument("--keep", type=Path, help="run one input in this new folder")
    parser.add_argument("--package", type=Path, help="a checkout whose onnxfde is tested")
    parser.add_argument("--no-page", action="store_true", help="print finds, write nothing")
    return parser.parse_args()


def all_seeds(options: argparse.Namespace) -> Sequence[tuple[str, int]]:
    """The traps, and mutations of all models in turns."""
    from benchmarks.fuzz.bases import bases
    from benchmarks.fuzz.traps import traps

    names, found = list(bases()), []
    for i, (name, cases) in enumerate(traps().items()):
        numbers = [i % len(cases)] if options.quick else range(len(cases))
        found += [(name, number) for number in numbers]
    for i in range(options.inputs):
        found.append((names[i % len(names)], options.first + i // len(names)))
    return found


def wanted(text: str) -> list[tuple[str, int]]:
    """The inputs that --only names."""
    from benchmarks.fuzz.traps import traps

    found = []
    for word in text.split(","):
        name, _, number = word.partition(":")
        count = len(traps().get(name, range(SOME)))
        found += [(name, int(number))] if number else [(name, i) for i in range(count)]
    return found


def show_one(seed: tuple[str, int], folder: Path) -> int:
    """Run one input in a folder that is kept, and say how to run it by hand."""
    from benchmarks.fuzz.finding import find, tried

    outcome = tried(*seed, folder)
    words = find(*seed).words.argv
    print((folder / "stdout").read_text("utf-8", "replace"), end="")
    print((folder / "stderr").read_text("utf-8", "replace"), end="", file=sys.stderr)
    print(f"\nin {folder / 'work'}: onnxfde {' '.join(map(repr, words))}")
    print(f"exit code {outcome.code}, {outcome.seconds:.1f} s, {outcome.megabytes:.0f} MB")
    print("problems:", ", ".join(outcome.problems) or "none", "|", outcome.signature)
    return int(bool(outcome.problems))


if __name__ == "__main__":
    sys.exit(main())
