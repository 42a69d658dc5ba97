"""What is shipped: the source distribution can run its own tests, the wheel is one package."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHIPPED = (".py", ".c", ".npz", ".onnx", ".html", ".css", ".js")
BUILD = "from setuptools import build_meta; build_meta.build_{kind}({folder!r})"


def tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not in a git checkout: nothing to compare the distributions with")
    return listed.stdout.split()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files under version control, in which a build may leave its traces."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in tracked():
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            target.symlink_to(source.readlink())
        elif source.exists():
            target.write_bytes(source.read_bytes())
    return folder


def built(checkout: Path, kind: str) -> Path:
    code = BUILD.format(kind=kind, folder=str(checkout / "dist"))
    subprocess.run([sys.executable, "-c", code], cwd=checkout, capture_output=True, check=True)
    (found,) = (checkout / "dist").glob("*.tar.gz" if kind == "sdist" else "*.whl")
    return found


def test_the_source_distribution_holds_what_its_tests_need(checkout: Path) -> None:
    with tarfile.open(built(checkout, "sdist")) as archive:
        shipped = {name.partition("/")[2] for name in archive.getnames()}
    needed = {"Makefile", "README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml"}
    suffixes = (".py", ".c", ".npz", ".onnx", ".csv", ".html", ".css", ".js")
    code = {name for name in tracked() if name.endswith(suffixes)}
    assert needed | code <= shipped


def test_the_wheel_ships_one_package_and_no_tests(checkout: Path) -> None:
    names = zipfile.ZipFile(built(checkout, "wheel")).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"onnxfde"}
    modules = {name for name in tracked() if name.startswith(("onnxfde/", "passes/"))}
    modules = {name for name in modules if name.endswith(SHIPPED)}
    assert {name.removeprefix("passes/") for name in modules} <= {
        name.removeprefix("onnxfde/passes/") for name in names
    }
