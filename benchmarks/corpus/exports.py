"""Small networks written by other people's exporters, once, into the cache.

Each exporter is a script of this folder that runs in the first Python that can import what it
needs: this one, or another one, since TensorFlow wants other versions of libraries than onnxfde.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.common.folders import BENCHMARKS
from benchmarks.corpus.cases import FOLDER, Case, Source

EXPORTERS = {
    "torch": "torch onnxscript",
    "sklearn": "sklearn skl2onnx",
    "keras": "tensorflow tf2onnx",
}
"""The exporters, and what their scripts import."""
WHOLE = "complete"
"""A file that says that an exporter was done, and its version."""


def exported(name: str, pythons: list[str]) -> Source:
    """The networks of one exporter, or why there are none."""
    folder = FOLDER / "exports" / name
    if not (folder / WHOLE).exists():
        reason = export(name, pythons, folder)
        if reason:
            return Source(name, f"exporter: {name}", (), skipped=reason)
    paths = sorted(folder.glob("*.onnx"))
    cases = tuple(Case(name, path.stem, path) for path in paths)
    return Source(name, f"exporter: {name}", cases, (folder / WHOLE).read_text().strip())


def export(name: str, pythons: list[str], folder: Path) -> str:
    """Run an exporter's script; the reason, if that is impossible."""
    python = next((p for p in [sys.executable, *pythons] if can_import(p, EXPORTERS[name])), None)
    if python is None:
        return f"no Python here has {EXPORTERS[name].replace(' ', ' and ')} (see --python)"
    folder.mkdir(parents=True, exist_ok=True)
    module = f"benchmarks.corpus.export_{name}"
    done = subprocess.run(
        [python, "-m", module, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=BENCHMARKS.parent,
    )
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    (folder / WHOLE).write_text(done.stdout.strip().splitlines()[-1] + "\n")
    return ""


def can_import(python: str, modules: str) -> bool:
    """Whether a Python has these modules."""
    code = f"import {modules.replace(' ', ', ')}"
    return not subprocess.run([python, "-c", code], capture_output=True, check=False).returncode
