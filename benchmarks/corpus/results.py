"""Results so far, one line of JSON for each model: an interrupted run goes on where it stopped."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import onnxfde
from benchmarks.corpus.cases import FOLDER, Case, content_hash
from benchmarks.corpus.judging import Outcome

RESULTS = FOLDER / "results.jsonl"
JUDGES = ("judging.py", "comparing.py", "running.py")
"""Files of this folder that results depend on."""

Outcomes = dict[str, Outcome]


def program_hash() -> str:
    """A hash of the program's source, and of the code that judges it."""
    package, here = Path(onnxfde.__file__).parent, Path(__file__).parent
    files = [*sorted(package.rglob("*.py")), *sorted((package / "passes").glob("*.py"))]
    content = b"".join(path.read_bytes() for path in [*files, *(here / name for name in JUDGES)])
    return hashlib.sha256(content).hexdigest()[:16]


def key_of(case: Case, program: str) -> str:
    """What a result depends on: the program, the model, and its place in the corpus."""
    return f"{program} {content_hash(case.path)[:16]} {case.group}/{case.name}"


def known(path: Path = RESULTS) -> dict[str, Outcomes]:
    """All results so far by key; a line that was cut off is left out."""
    found: dict[str, Outcomes] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[entry["key"]] = {name: Outcome(**o) for name, o in entry["outcomes"].items()}
    return found


def remember(key: str, outcomes: Outcomes, path: Path = RESULTS) -> None:
    """Append a result."""
    entry: dict[str, Any] = {"key": key}
    entry["outcomes"] = {name: dataclasses.asdict(o) for name, o in outcomes.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        stream.write(json.dumps(entry) + "\n")
