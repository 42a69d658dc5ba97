"""Does a run that is killed, starved or disturbed ever harm a model?

`python -m benchmarks.kill` (`--cases N`, 0 for all of about 2,300) stops `onnxfde optimize` with
SIGKILL, SIGINT and SIGTERM before every event that opens for writing, renames, removes, makes a
folder or takes a lock, before every system call that writes (if strace is there), and at random
moments; on a full disk and in a read-only folder (if a small file system may be mounted), with
RLIMIT_FSIZE, and with two runs on one OUT. Afterwards OUT must be old (absent if there was none) or
new as a whole, model and data together; all files but OUT, its data and the report untouched,
whatever they are called; and the next run must succeed and leave nothing behind, except at most one
data file that no model names.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.common import table
from benchmarks.common.kill_scenarios import (
    DATA,
    OTHER,
    SCENARIOS,
    Scenario,
    Template,
    digest,
    foreign_of,
    is_json,
    listing_of,
)
from benchmarks.common.stopped_commands import (
    HUNG,
    Ended,
    Started,
    Stop,
    calls_of,
    has_strace,
    run,
)

SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
RANDOM_MOMENTS = 4
"""Random moments per scenario and signal; chosen."""
FILE_LIMITS = (0, 1, 200, 600, 1200, 2400, 4800, 9600)
"""Bytes that a file may have; chosen around the sizes of the files here."""
FREE_PAGES = (0, 1, 2, 3, 4, 5, 6, 8, 10)
"""Pages of 4,096 bytes that are free on a full disk; chosen around what a run writes."""
PAIRS = 6
"""Pairs of runs per scenario, each with and without a kill; chosen."""
CASES = 700
"""Cases of a run, of every kind equally many; chosen so that it takes minutes."""
FAULTS = ("torn", "mixed", "lost", "strays", "next run failed", "traceback", "hung")
"""What must not happen."""


@dataclass(frozen=True)
class Case:
    """One disturbance of one scenario."""

    how: str
    scenario: int
    stop: Stop
    pages: int | None = None
    """Free pages on the disk, if it is small."""
    pair: bool = False
    """Whether another run writes the same OUT at the same time."""
    read_only: bool = False
    """Whether nothing can be written, nowhere in the folder."""

    @property
    def on_own_disk(self) -> bool:
        """Whether a file system is mounted for it."""
        return self.read_only or self.pages is not None


@dataclass
class Verdict:
    """What became of a case."""

    case: Case
    state: str = ""
    faults: list[str] = field(default_factory=list)
    data_left: bool = False
    """Whether a data file stayed that no model names."""
    note: str = ""


def all_cases(templates: list[Template], scratch: Path, rng: random.Random) -> Iterator[Case]:
    """Every case, in a fixed order."""
    for number, template in enumerate(templates):
        for signum, at in itertools.product(SIGNALS, range(1, template.events + 1)):
            name = f"{signal.Signals(signum).name} before each event"
            yield Case(name, number, Stop("event", at, signum))
        for signum, _ in itertools.product(SIGNALS, range(RANDOM_MOMENTS)):
            name = f"{signal.Signals(signum).name} at random"
            yield Case(name, number, Stop("time", rng.uniform(0, 1.2 * template.seconds), signum))
        for limit in FILE_LIMITS:
            yield Case("RLIMIT_FSIZE", number, Stop("limit", limit))
        if not template.scenario.out.endswith(".ort"):
            for i in range(PAIRS):
                at = rng.randint(1, template.events)
                stop = Stop("event", at) if i % 2 else Stop()
                name = "two runs, one killed" if i % 2 else "two runs on one OUT"
                yield Case(name, number, stop, pair=True)
        yield from call_cases(number, template, scratch)
        if may_mount(scratch):
            yield from (Case("disk full", number, Stop(), pages) for pages in FREE_PAGES)
            yield Case("read-only folder", number, Stop(), read_only=True)


def call_cases(number: int, template: Template, scratch: Path) -> Iterator[Case]:
    """SIGKILL before every system call that writes."""
    if not has_strace():
        return
    folder = template.copied(scratch / "calls")
    counts = calls_of(template.scenario.words(folder), folder)
    shutil.rmtree(folder)
    for call, count in counts.items():
        for at in range(1, count + 1):
            stop = Stop("call", at, signal.SIGKILL, call)
            yield Case("SIGKILL before each system call", number, stop)


def may_mount(scratch: Path) -> bool:
    """Whether a small file system can be mounted here."""
    folder = scratch / "mount"
    folder.mkdir(exist_ok=True)
    if not mounted(folder, 1):
        return False
    subprocess.run(["umount", str(folder)], check=True)
    return True


def mounted(folder: Path, pages: int, remount: bool = False, read_only: bool = False) -> bool:
    """Mount a file system with this many pages; returns whether that worked."""
    mode = "ro" if read_only else "rw"
    options = f"{'remount,' if remount else ''}{mode},size={4096 * pages}"
    words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return (
        shutil.which("mount") is not None
        and not subprocess.run(words, capture_output=True).returncode
    )


def judged(templates: list[Template], scratch: Path, numbered: tuple[int, Case]) -> Verdict:
    """Carry out a case."""
    number, case = numbered
    template, folder = templates[case.scenario], scratch / f"case{number}"
    if not case.on_own_disk:
        try:
            return disturbed(case, template, template.copied(folder))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    mounted(folder, 10_000)
    try:
        start = template.copied(folder / "w")
        pages = os.statvfs(folder)
        used = pages.f_blocks - pages.f_bfree
        free = 10_000 if case.pages is None else case.pages
        assert mounted(folder, used + free, remount=True, read_only=case.read_only)
        return disturbed(case, template, start)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


def disturbed(case: Case, template: Template, folder: Path) -> Verdict:
    """Run a command with its disturbance, look at the folder, and run it again."""
    scenario, verdict = template.scenario, Verdict(case)
    foreign = foreign_of(folder, scenario)
    for ended in commands(case, template, folder):
        look_at(ended, verdict)
    allowed = template.others if case.pair else {template.after}
    verdict.state = state_of_out(folder, template, allowed, verdict)
    if is_lost(folder, template, foreign, verdict):
        verdict.faults.append("lost")
    if case.on_own_disk:
        mounted(folder.parent, 10_000, remount=True)
    ended = run(scenario.words(folder), folder)
    look_at(ended, verdict)
    if ended.code or (scenario.report and not is_json(folder / scenario.report)):
        verdict.faults.append("next run failed")
        verdict.note += f" next run: {ended.code} {ended.stderr.strip()}"
    if state_of_out(folder, template, allowed, verdict) != "new":
        verdict.faults.append("next run failed")
    if is_lost(folder, template, foreign, verdict):
        verdict.faults.append("lost")
    look_for_strays(folder, template, verdict)
    return verdict


def is_lost(
    folder: Path, template: Template, foreign: dict[str, tuple[int, object]], verdict: Verdict
) -> bool:
    """Whether an old OUT is gone, or a file that is not ours was changed."""
    now = foreign_of(folder, template.scenario)
    lost = [name for name, state in foreign.items() if now.get(name) != state]
    verdict.note += f" changed: {lost}" if lost else ""
    return bool(lost) or (template.before is not None and verdict.state == "absent")


def look_for_strays(folder: Path, template: Template, verdict: Verdict) -> None:
    """Note what the next run left behind; a stopped run may leave one data file."""
    found = listing_of(folder)
    more = found - template.listing
    data = {name: count for name, count in more.items() if name.endswith(DATA)}
    verdict.data_left = bool(data)
    stopped = verdict.case.stop.kind != "never"
    if template.listing - found or len(data) < len(more) or sum(data.values()) > stopped:
        verdict.faults.append("strays")
        verdict.note += f" {sorted(more)} {sorted(template.listing - found)}"


def commands(case: Case, template: Template, folder: Path) -> list[Ended]:
    """Run the command, perhaps with another one at the same time."""
    words = template.scenario.words(folder)
    if not case.pair:
        return [run(words, folder, case.stop)]
    other = template.scenario.words(folder, OTHER)
    pair = [Started.of(words, folder, case.stop), Started.of(other, folder, Stop())]
    for each in pair:
        each.release()
    return [each.ended() for each in pair]


def look_at(ended: Ended, verdict: Verdict) -> None:
    """Note a command that did not end as it should."""
    if "Traceback" in ended.stderr or "shows where" in ended.stderr:
        verdict.faults.append("traceback")
        verdict.note += ended.stderr.strip()[-300:]
    if ended.code == HUNG:
        verdict.faults.append("hung")


def state_of_out(folder: Path, template: Template, allowed: set[str], verdict: Verdict) -> str:
    """Whether OUT is absent, old or new."""
    try:
        found = digest(folder / template.scenario.out)
    except Exception as error:  # noqa: BLE001 - whatever a reader of OUT would meet
        verdict.faults.append("torn")
        verdict.note += f" {error}"
        return "torn"
    if found is None:
        return "absent"
    if found in allowed:
        return "new"
    if found == template.before:
        return "old"
    verdict.faults.append("mixed")
    return "mixed"


def chosen(cases: list[Case], count: int, rng: random.Random) -> list[Case]:
    """All cases, or some of every kind if a count is given."""
    if not count or count >= len(cases):
        return cases
    groups: dict[str, list[Case]] = {}
    for case in rng.sample(cases, len(cases)):
        groups.setdefault(case.how, []).append(case)
    turns = itertools.zip_longest(*groups.values())
    return [case for turn in turns for case in turn if case is not None][:count]


def verdicts(count: int, scenarios: Iterable[Scenario] = SCENARIOS) -> list[Verdict]:
    """Carry out all cases, or some, on all cores."""
    rng = random.Random(0)
    with tempfile.TemporaryDirectory(prefix="onnxfde-kill-") as name:
        scratch = Path(name)
        templates = []
        for number, scenario in enumerate(scenarios):
            templates.append(Template.made(scenario, scratch / f"template{number}"))
            (scratch / "pairs").mkdir(exist_ok=True)
            if not scenario.out.endswith(".ort"):
                templates[-1].learn_two_runs(scratch / "pairs")
        cases = chosen(list(all_cases(templates, scratch, rng)), count, rng)
        work = partial(judged, templates, scratch)
        with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
            return list(pool.imap_unordered(work, enumerate(cases), chunksize=4))


def rows_of(found: list[Verdict], groups: Iterable[str], names: list[str]) -> list[list[object]]:
    """One row per group: cases, states of OUT, faults."""
    lines: list[list[object]] = []
    for group in groups:
        part = [v for v, name in zip(found, names, strict=True) if group in (name, "all")]
        states = Counter(v.state for v in part)
        faults = Counter(fault for v in part for fault in set(v.faults))
        left = sum(v.data_left for v in part)
        counts = (
            [states[s] for s in ("absent", "old", "new")] + [faults[f] for f in FAULTS] + [left]
        )
        lines.append([group, len(part), *counts])
    return lines


def skipped() -> str:
    """What could not be tried on this machine."""
    found = [] if has_strace() else ["strace is not here: no kills before system calls"]
    with tempfile.TemporaryDirectory() as name:
        if not may_mount(Path(name)):
            found.append("no file system may be mounted here: no full disk, no read-only folder")
    return "; ".join(found) or "Nothing was left out."


def main() -> None:
    """Carry out the cases and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES, metavar="N", help="0: all")
    count = parser.parse_args().cases
    begun = time.monotonic()
    found = verdicts(count)
    bad = [v for v in found if v.faults]
    for verdict in bad:
        print(SCENARIOS[verdict.case.scenario].name, verdict)
    header = " | ".join(("", "cases", "OUT absent", "old", "new", *FAULTS, "data left"))
    hows, scenes = ([v.case.how for v in found], [SCENARIOS[v.case.scenario].name for v in found])
    sections = [
        table.Section("By disturbance", header, rows_of(found, [*sorted({*hows}), "all"], hows)),
        table.Section("By scenario", header, rows_of(found, dict.fromkeys(scenes), scenes)),
    ]
    minutes = (time.monotonic() - begun) / 60
    note = (
        f"`--cases {count}`: {len(found):,} cases in {minutes:.1f} minutes, {len(bad)} with a "
        f"fault. The columns after `cases` say what OUT was right after the disturbance; "
        f"`data left` is no fault: a run was stopped between two steps, and a data file stayed "
        f"that no model names. {skipped()}"
    )
    table.write_sections(__file__, "Runs that are killed, starved or disturbed", sections, note)
    if bad:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
