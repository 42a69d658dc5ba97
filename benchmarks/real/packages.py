"""Files from packages of PyPI and Debian, unpacked once into a folder; nothing is installed."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory


def python_package(requirement: str, folder: Path) -> Path:
    """The files of a wheel, such as `magika==1.0.3`, without those that it needs."""
    target = folder / requirement.replace("==", "-")
    if not target.exists():
        with TemporaryDirectory(dir=made(folder)) as part:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            called([*pip, "--only-binary", ":all:", requirement], Path(part))
            (wheel,) = Path(part).glob("*.whl")
            with zipfile.ZipFile(wheel) as files:
                files.extractall(Path(part) / "files")
            (Path(part) / "files").rename(target)
    return target


def debian_package(name: str, folder: Path) -> Path:
    """The files of a Debian package, in the version that apt knows."""
    target = folder / name
    if not target.exists():
        with TemporaryDirectory(dir=made(folder)) as part:
            called(["apt-get", "download", "--quiet", name], Path(part))
            (package,) = Path(part).glob("*.deb")
            called(["dpkg-deb", "-x", package.name, "files"], Path(part))
            (Path(part) / "files").rename(target)
    return target


def made(folder: Path) -> Path:
    """A folder, which is there from now on."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def called(command: list[str], folder: Path) -> None:
    """Run a command in a folder; it may fetch packages."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise FileNotFoundError(f"{' '.join(command)}: {done.stderr.strip()}")
