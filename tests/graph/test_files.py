"""Models are written whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

import onnxfde
from onnxfde.errors import OutputError
from onnxfde.graph import files
from tests.models import OLD_MODEL, contents, mlp, twins


def test_without_merges_the_output_is_the_input_byte_for_byte(tmp_path: Path) -> None:
    path, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    raw = mlp(*twins(copies=1)).SerializeToString()
    path.write_bytes(raw + b"\x92\x3f\x03odd")
    report = onnxfde.optimize(path, eps=1e-9).save(out)
    assert not report.changed
    assert out.read_bytes() == path.read_bytes()


def test_a_full_disk_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.onnx"
    out.write_bytes(OLD_MODEL)
    result = onnxfde.optimize(mlp(*twins()), eps=0)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left"):
        result.save(out)
    assert contents(tmp_path) == {"out.onnx": OLD_MODEL}


def test_an_interruption_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.onnx"
    out.write_bytes(OLD_MODEL)
    result = onnxfde.optimize(mlp(*twins()), eps=0)

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        result.save(out)
    assert contents(tmp_path) == {"out.onnx": OLD_MODEL}


def test_bad_targets_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OutputError, match="no such folder"):
        files.check_target(tmp_path / "gone" / "out.onnx")
    with pytest.raises(OutputError, match="is not a file"):
        files.check_target(tmp_path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(OutputError, match="not writable"):
        files.check_target(tmp_path / "out.onnx")


def test_permissions_and_links_of_the_target_survive(tmp_path: Path) -> None:
    out, link = tmp_path / "out.onnx", tmp_path / "link.onnx"
    out.write_bytes(OLD_MODEL)
    out.chmod(0o640)
    link.symlink_to(out)
    onnxfde.optimize(mlp(*twins()), eps=0).save(link)
    assert link.is_symlink()
    assert out.stat().st_mode & 0o777 == 0o640
    assert out.stat().st_size > 3


def test_file_systems_without_hard_links_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_link(*_: Any) -> None:
        raise OSError(errno.EPERM, "no")

    monkeypatch.setattr(os, "link", no_link)
    out = tmp_path / "out.onnx"
    out.write_bytes(OLD_MODEL)
    onnxfde.optimize(mlp(*twins()), eps=0).save(out)
    assert onnxfde.inspect(out).layers[0].neurons == 3
    assert list(contents(tmp_path)) == ["out.onnx"]
