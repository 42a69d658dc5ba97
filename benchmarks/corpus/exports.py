"""Small networks written by other people's exporters, once, into the cache.

Each exporter is a script of this folder that runs in the first Python that can import what it
needs: this one, or another one, since TensorFlow wants other versions of libraries than onnxfde.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.common.folders import BENCHMARKS
from benchmarks.corpus.cases import FOLDER, Case, Source
from benchmarks.corpus.packages import NotInstallable, installed

EXPORTERS = {
    "torch": "torch onnxscript",
    "sklearn": "sklearn skl2onnx",
    "keras": "tensorflow tf2onnx",
}
"""The exporters, and what their scripts import."""
PURE = {"sklearn": "skl2onnx"}
"""Exporters in pure Python, which are installed into the cache like the packages with models."""
WHOLE = "complete"
"""A file that says that an exporter was done, and its version."""


def exported(name: str, pythons: list[str]) -> Source:
    """The networks of one exporter, or why there are none."""
    folder = FOLDER / "exports" / name
    if not (folder / WHOLE).exists():
        try:
            export(name, pythons, folder)
        except NotInstallable as error:
            return Source(name, f"exporter: {name}", (), skipped=str(error))
    paths = sorted(folder.glob("*.onnx"))
    cases = tuple(Case(name, path.stem, path) for path in paths)
    return Source(name, f"exporter: {name}", cases, (folder / WHOLE).read_text().strip())


def export(name: str, pythons: list[str], folder: Path) -> None:
    """Run an exporter's script."""
    beside = str(installed(PURE[name])) if name in PURE else ""
    search = os.pathsep.join([beside, os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
    env = {**os.environ, "PYTHONPATH": search}
    chosen = (p for p in [sys.executable, *pythons] if can_import(p, EXPORTERS[name], env))
    python = next(chosen, None)
    if python is None:
        needed = EXPORTERS[name].replace(" ", " and ")
        raise NotInstallable(f"no Python here has {needed} (see --python)")
    folder.mkdir(parents=True, exist_ok=True)
    module = f"benchmarks.corpus.export_{name}"
    done = subprocess.run(
        [python, "-m", module, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=BENCHMARKS.parent,
        env=env,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise NotInstallable(lines[-1] if lines else f"exit code {done.returncode}")
    (folder / WHOLE).write_text(done.stdout.strip().splitlines()[-1] + "\n")


def can_import(python: str, modules: str, env: dict[str, str]) -> bool:
    """Whether a Python has these modules."""
    words = [python, "-c", f"import {modules.replace(' ', ', ')}"]
    return not subprocess.run(words, capture_output=True, check=False, env=env).returncode
