"""The Python in README.md passes mypy --strict and pyright against the wheel.

The wheel is unpacked into an empty environment in front of the packages of this one, so that what
is checked is what users install.
"""

from __future__ import annotations

import re
import shutil
import site
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = "from setuptools import build_meta; build_meta.build_wheel('dist')"


def copy_checkout(folder: Path) -> None:
    """Copy the files under version control; a build may leave its traces there."""
    listed = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.exists():
            shutil.copy2(source, target, follow_symlinks=False)


def environment_with_wheel(folder: Path) -> Path:
    """The interpreter of an environment that has the wheel, and what else this one has."""
    copy_checkout(folder / "checkout")
    subprocess.run(
        [sys.executable, "-c", BUILD], cwd=folder / "checkout", check=True, capture_output=True
    )
    (wheel,) = (folder / "checkout" / "dist").glob("*.whl")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    (packages,) = (folder / "venv").glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(packages)
    (packages / "others.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")
    return folder / "venv" / "bin" / "python"


def snippets(folder: Path) -> list[str]:
    """Each block of Python in README.md, in a file of its own."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    if not blocks:
        sys.exit("README.md has no Python to check")
    files = [folder / f"readme_{number}.py" for number, _ in enumerate(blocks, start=1)]
    for file, block in zip(files, blocks, strict=True):
        file.write_text(block, encoding="utf-8")
    return [file.name for file in files]


def check_readme(folder: Path) -> bool:
    """Whether all tools that can be run are content."""
    python = environment_with_wheel(folder)
    files = snippets(folder)
    commands = [[sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python)]]
    if shutil.which("node"):
        commands.append([sys.executable, "-m", "pyright", "--pythonpath", str(python)])
    else:
        sys.stdout.write("there is no node: README.md is not checked by pyright\n")
    done = [subprocess.run([*command, *files], cwd=folder) for command in commands]
    return not any(process.returncode for process in done)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="onnxfde-readme-") as name:
        sys.exit(not check_readme(Path(name)))
