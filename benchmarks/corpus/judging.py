"""One model through the commands, each in a child process, and what became of it."""

from __future__ import annotations

import dataclasses
import importlib
import json
import pkgutil
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import onnxfde
from benchmarks.common.forked import Ended, run_forked
from benchmarks.corpus.cases import Case, content_hash, external_files
from benchmarks.corpus.comparing import Comparison, checker_says, compare
from benchmarks.corpus.running import ENGINES, ERRORS

EPS = ("0", "0.1")
SECONDS = 300.0
"""CPU time that a command may take."""
MEANINGS = {
    "shown": "`inspect` printed its table",
    "identical": "OUT is IN, byte for byte",
    "equal": "another file, whose outputs are the original's up to rounding",
    "within ε": "another file, whose outputs changed by at most ε: relative L2, "
    "‖y′ − y‖ / ‖y − mean y‖, of the output that changed most, on random inputs in [−1, 1]",
    "within kε": "by more than ε, at most kε, where k layers were merged: ε is the change that "
    "each layer may have, not the network",
    "above ε": "by more than that",
    "uncompared": "another file, and no engine runs the original",
    "refused": "exit code 1, one line that says why, nothing written",
    "failed": "traceback, unexpected error, warning, crash, more than 300 s of CPU time, wrong "
    "exit code, wrong or invalid result, interface or description changed, file left behind, "
    "IN changed",
}
"""Every verdict, from good to bad."""
UNEXPECTED = ("Traceback (most recent call last)", "shows where")
"""What no command may ever print."""
REPORT, ANSWER = "report.json", "answer.json"
MODULES = (
    "onnx_graphsurgeon", "scipy.linalg", "scipy.optimize", "scipy.stats", "rich.progress",
    "rich.table", "pydantic", "typer._adapters", "onnxruntime.quantization",
)  # fmt: skip
"""Libraries that the commands import when they need them."""


@dataclass
class Outcome:
    """What one command did with one model."""

    verdict: str
    reason: str = ""
    seconds: float = 0.0
    megabytes: float = 0.0
    detail: dict[str, Any] = field(default_factory=dict)


def command(*words: str) -> None:
    """The program's entry point, with these words on its command line."""
    from onnxfde.__main__ import start

    sys.argv = ["onnxfde", *words]
    start()


def warm_up() -> None:
    """Import what the commands import, so that forked children need not."""
    for name in (
        *MODULES,
        *(found.name for found in pkgutil.walk_packages(onnxfde.__path__, "onnxfde.")),
    ):
        if not name.endswith(("__main__", ".runner")):
            importlib.import_module(name)


def judged(case: Case) -> dict[str, Outcome]:
    """All commands on one model."""
    before, around = content_hash(case.path), set(case.path.parent.iterdir())
    found = {"inspect": in_a_folder(partial(inspected, case))}
    for eps in EPS:
        found[eps] = in_a_folder(partial(optimized, case, eps))
    if any(outcome.verdict == "refused" for outcome in found.values()):
        said = in_a_folder(partial(examined, case))
        for outcome in found.values():
            outcome.detail |= said.detail if outcome.verdict == "refused" else {}
    if content_hash(case.path) != before:
        found[EPS[0]] = Outcome("failed", "IN changed")
    if strays := set(case.path.parent.iterdir()) - around:
        found[EPS[0]] = Outcome("failed", f"files beside IN: {sorted(p.name for p in strays)}")
    return found


def in_a_folder(action: Callable[[Path], Outcome]) -> Outcome:
    """An action with a folder of its own, which is also where its temporary files go."""
    with tempfile.TemporaryDirectory(prefix="corpus-") as folder:
        return action(Path(folder))


def started(words: list[str], folder: Path) -> Ended:
    """A command in a child, whose temporary files go to a folder that is looked at afterwards."""
    (folder / "tmp").mkdir()

    def action() -> None:
        tempfile.tempdir = str(folder / "tmp")
        command(*words)

    return run_forked(action, folder, SECONDS)


def inspected(case: Case, folder: Path) -> Outcome:
    """`onnxfde inspect IN`."""
    ended = started(["inspect", str(case.path)], folder)
    return settled(ended, folder, allowed=set()) or outcome_of(ended, "shown")


def optimized(case: Case, eps: str, folder: Path) -> Outcome:
    """`onnxfde optimize IN OUT --eps ε`, and the comparison."""
    out, report = folder / "out.onnx", folder / REPORT
    words = ["optimize", str(case.path), str(out), "--eps", eps, "--report", str(report)]
    ended = started(words, folder)
    allowed = {out, report, *external_files(out)} if not ended.code else set()
    if early := settled(ended, folder, allowed):
        return early
    if not out.exists() or not report.exists():
        return outcome_of(ended, "failed", "exit code 0, but OUT or the report is missing")
    return with_layers(compared_in_child(case, eps, out, ended, folder), folder)


def outcome_of(ended: Ended, verdict: str, reason: str = "") -> Outcome:
    """An outcome with the command's costs."""
    return Outcome(verdict, reason, round(ended.seconds, 3), round(ended.megabytes, 1))


def settled(ended: Ended, folder: Path, allowed: set[Path]) -> Outcome | None:
    """The outcome as far as streams, exit code and files tell it; None if all is well so far."""
    said = ended.output + ended.errors
    lines = ended.errors.strip().splitlines()
    found = {path for path in folder.rglob("*") if path.is_file()}
    if ended.timed_out:
        return outcome_of(ended, "failed", f"more than {SECONDS:g} s of CPU time")
    if ended.code < 0:
        return outcome_of(ended, "failed", f"killed by signal {-ended.code}")
    if any(text in said for text in UNEXPECTED):
        return outcome_of(ended, "failed", lines[-1] if lines else "traceback on stdout")
    if "Warning:" in said:
        warning = next(line for line in said.splitlines() if "Warning:" in line)
        return outcome_of(ended, "failed", f"a warning reached the user: {warning}")
    if found - allowed:
        strays = sorted(str(path.relative_to(folder)) for path in found - allowed)
        return outcome_of(ended, "failed", f"files left behind: {strays}")
    if ended.code == 0:
        return None
    told = [line for line in lines if not line.startswith(("note: ", "layer "))]
    if ended.code == 1 and len(told) == 1 and told[0].startswith("onnxfde: "):
        return outcome_of(ended, "refused", told[0].removeprefix("onnxfde: "))
    return outcome_of(ended, "failed", f"exit code {ended.code}: {' / '.join(lines)[:500]}")


def compared_in_child(case: Case, eps: str, out: Path, ended: Ended, folder: Path) -> Outcome:
    """The judgement of a result that was written."""
    if content_hash(out) == content_hash(case.path):
        return outcome_of(ended, "identical")
    answer = folder / ANSWER
    child = run_forked(lambda: told(answer, compare(case, out)), folder, SECONDS)
    if child.code or not answer.exists():
        return outcome_of(ended, "uncompared", f"the comparison ended with {last_line(child)}")
    found = Comparison(**json.loads(answer.read_text()))
    verdict, reason = verdict_of(found, float(eps), layers_merged(folder))
    outcome = outcome_of(ended, verdict, reason)
    outcome.detail = dataclasses.asdict(found)
    return outcome


def told(answer: Path, found: Any) -> None:
    """Write a child's answer."""
    answer.write_text(json.dumps(dataclasses.asdict(found)))


def last_line(ended: Ended) -> str:
    """The last line of what a child wrote to stderr, or its exit code."""
    return (ended.errors.strip().splitlines() or [f"exit code {ended.code}"])[-1]


def verdict_of(found: Comparison, eps: float, layers: int) -> tuple[str, str]:
    """What a comparison means at this ε, where so many layers were merged."""
    if found.fault:
        return "failed", found.fault
    if found.uncompared:
        return "uncompared", found.uncompared
    if found.rounding <= 1:
        return "equal", ""
    if eps == 0:
        return "failed", f"differs by {found.rounding:.3g} times what rounding explains"
    if found.change <= eps:
        return "within ε", ""
    return ("within kε" if found.change <= eps * layers else "above ε"), ""


def layers_merged(folder: Path) -> int:
    """How many layers have fewer neurons, by the report."""
    layers = json.loads((folder / REPORT).read_text())["layers"]
    return sum(layer["neurons_after"] < layer["neurons_before"] for layer in layers)


def with_layers(outcome: Outcome, folder: Path) -> Outcome:
    """The outcome with what the report says was merged."""
    content = json.loads((folder / REPORT).read_text())
    outcome.detail["merged"] = layers_merged(folder)
    outcome.detail["parameters"] = content["parameters"]
    outcome.detail["claimed"] = (content["verification"] or {}).get("relative_l2")
    return outcome


def examined(case: Case, folder: Path) -> Outcome:
    """Whether onnxruntime loads the original, and what onnx's checker says of it."""
    answer = folder / ANSWER
    child = run_forked(lambda: told(answer, examination(case)), folder, SECONDS)
    detail = json.loads(answer.read_text())["detail"] if answer.exists() else {}
    return Outcome("", detail=detail or {"loads": False, "checker": last_line(child)})


def examination(case: Case) -> Outcome:
    """The original by itself."""
    try:
        ENGINES["onnxruntime"](case.path)
    except ERRORS:
        loads = False
    else:
        loads = True
    return Outcome("", detail={"loads": loads, "checker": checker_says(case.path)})


def general(reason: str) -> str:
    """A reason without paths, names and numbers, so that equal ones can be counted."""
    text = re.sub(r"\S*/\S*\.onnx", "IN", reason)
    text = re.sub(r"'[^']*'", "'…'", text)
    return re.sub(r"\d+", "#", text)[:160]
