"""A cache folder for the emulated ARM processor, and a small set-up in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onnxfde.machines.targets import sysroot


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "onnxfde"


@pytest.fixture
def ready(cache: Path) -> Path:
    folder = cache / "arm64"
    (folder / "guest" / "lib").mkdir(parents=True)
    (folder / "guest" / "lib" / "libc.so").write_text("libc")
    os.utime(folder / "guest" / "lib" / "libc.so", (0, 0))
    (folder / "cortex-a53").symlink_to("guest")
    sysroot.write_manifest(folder)
    return folder
