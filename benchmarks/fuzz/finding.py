"""Outcomes of cases, and the signature under which equal failures are grouped."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fuzz.cases import Case, case_of, show
from benchmarks.fuzz.engine import Run, run, scratch
from benchmarks.fuzz.judging import Judge, snapshot
from benchmarks.fuzz.traps import trap_case, traps

FRAME = re.compile(r'File ".*?/(onnxfde|passes)/([^"]+)", line (\d+)(?:,)? in (\w+)')
LATEST_FIRST = "most recent call first"
ERROR = re.compile(
    r"^([A-Za-z_][\w.]*(?:Error|Exception|Exit|Fail|InvalidArgument|Interrupt)\w*)\b"
)


@dataclass(frozen=True)
class Outcome:
    """What became of one input."""

    name: str
    number: int
    command: str
    code: int
    seconds: float
    megabytes: float
    problems: list[str]
    signature: str = ""
    line: str = ""
    """The command line."""
    last: str = ""
    """The last line on stderr."""

    @property
    def seed(self) -> str:
        """The word for --only."""
        return f"{self.name}:{self.number}"


def find(name: str, number: int) -> Case:
    """The mutation or the trap with this name and number."""
    return trap_case(name, number) if name in traps() else case_of(name, number)


def tried(name: str, number: int, keep: Path | None = None) -> Outcome:
    """Run one input and judge it."""
    case = find(name, number)
    with scratch(keep) as folder:
        case.write(folder)
        before = snapshot(folder)
        done = run(case, folder)
        problems = Judge(case, folder, before, done).problems()
    text = done.stderr
    if "boundary" in problems:
        with scratch(None) as folder:
            case.write(folder)
            text = run(case, folder, ("--debug",)).stderr
    return Outcome(
        name,
        number,
        case.words.command,
        done.code,
        done.seconds,
        done.megabytes,
        problems,
        signature(problems, text, case, done) if problems else "",
        show(["onnxfde", *case.words.argv]) if problems else "",
        last_line(text)[:200] if problems else "",
    )


def signature(problems: list[str], text: str, case: Case, done: Run) -> str:
    """Equal for equal faults: what happened and, if known, where."""
    frames = [f"{m[2]}:{m[4]}" for m in FRAME.finditer(text)]
    where = (frames[0] if LATEST_FIRST in text else frames[-1]) if frames else ""
    errors = [found[1] for line in text.splitlines() if (found := ERROR.match(line))]
    error = errors[-1].rpartition(".")[2] if errors and frames else ""
    if not where and problems[0] in ("not one line", "noise on stderr", "warning"):
        where = re.sub(r"'[^']*'|\d+", "…", (done.stderr.splitlines() or [""])[0])[:60]
    heavy = problems[0] in ("hang", "memory") or problems[0].startswith("signal")
    place = where or (f"{case.words.command} {case.name}" if heavy else case.words.command)
    return " ".join(filter(None, ("; ".join(problems), error, "in", place)))


def last_line(text: str) -> str:
    """The last line that says something."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")
