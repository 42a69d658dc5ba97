"""What nobody foresaw ends in one line, and so do streams that cannot be written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onnxfde.command.interruption import interruption_behind
from tests.command.running import run

FULL = Path("/dev/full")


def failing(error: BaseException) -> Any:
    def work(*_: Any, **__: Any) -> None:
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (TypeError("odd\nthing"), "unexpected error (TypeError: odd thing)"),
        (OSError(5, "Input/output error"), "unexpected error (OSError: [Errno 5] Input/output"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), "unexpected error (UnicodeDecodeError"),
        (RecursionError("too deep"), "unexpected error (RecursionError: too deep)"),
        (MemoryError(), "not enough memory"),
    ],
)
@pytest.mark.parametrize(
    ("work", "command"),
    [
        ("onnxfde.pipeline.optimized", "optimize M O"),
        ("onnxfde.inspection.inspect", "inspect M"),
        ("onnxfde.pipeline.verify", "verify M M"),
        ("onnxfde.machines.benchmark.bench", "bench M"),
    ],
)
def test_an_unforeseen_error_is_one_line(
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    work: str,
    command: str,
    error: Exception,
    line: str,
) -> None:
    monkeypatch.setattr(work, failing(error))
    files = {"M": model, "O": model.with_name("out.onnx")}
    done = run(*(files.get(word, word) for word in command.split()))
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith(f"onnxfde: {line}")
    assert done.stderr.endswith(f"; onnxfde --debug {command.split()[0]} … shows where\n")
    assert done.stderr.count("\n") == 1


def test_debug_shows_where_an_unforeseen_error_comes_from(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxfde.inspection.inspect", failing(TypeError("odd")))
    done = run("--debug", "inspect", model)
    assert isinstance(done.exception, TypeError)
    assert done.stderr == ""


def test_an_error_of_ours_is_one_line_whatever_names_it_quotes(tmp_path: Path) -> None:
    done = run("inspect", tmp_path / "a\nb\x1b[31m.onnx")
    assert done.exit_code == 1
    assert done.stderr.endswith("a b [31m.onnx: no such file\n")
    assert done.stderr.count("\n") == 1


def test_whether_a_file_can_be_read_is_no_question_of_usage(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.R_OK and access(path, mode))
    assert run("inspect", model, "-q").exit_code == 0
    assert run("verify", model, model, "-q").exit_code == 0
    assert run("optimize", model, model.with_name("out.onnx"), "-q").exit_code == 0


def test_models_that_cannot_be_read_are_named_without_a_table(tmp_path: Path) -> None:
    done = run("bench", tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert (done.exit_code, done.stdout) == (1, "")
    wanted = [f"onnxfde: {tmp_path / name}: no such file" for name in ("a.onnx", "b.onnx")]
    assert done.stderr.splitlines() == wanted


def test_an_interruption_is_recognised_behind_the_error_of_a_library() -> None:
    assert interruption_behind(KeyboardInterrupt())
    caused, noticed = ImportError("initialization failed"), ImportError("initialization failed")
    caused.__cause__ = noticed.__context__ = KeyboardInterrupt()
    assert interruption_behind(caused)
    assert interruption_behind(noticed)
    assert not interruption_behind(ImportError("no module"))


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of a shell in which `onnxfde` is this package."""
    return subprocess.run(
        ["bash", "-c", f'onnxfde() {{ "{sys.executable}" -m onnxfde "$@"; }}; {command}'],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("command", "code", "stderr"),
    [
        ("onnxfde --help >/dev/full", 1, "onnxfde: stdout cannot be written (No space left on"),
        ("onnxfde verify in.onnx in.onnx >/dev/full", 1, "onnxfde: stdout cannot be written"),
        ("onnxfde verify in.onnx in.onnx >&-", 0, ""),
        ("onnxfde inspect gone.onnx >&- 2>&- <&-", 1, ""),
        ("onnxfde inspect gone.onnx 2>/dev/full", 1, ""),
        ("set -o pipefail; onnxfde --help | head -0", 1, ""),
    ],
)
def test_streams_that_cannot_be_written(model: Path, command: str, code: int, stderr: str) -> None:
    done = shell(command, model.parent)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(stderr)
    assert done.stderr.count("\n") == (1 if stderr else 0)


INTERRUPTED_IMPORT = """
import os, signal, sys
class Finder:
    def find_spec(self, name, *_):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
from onnxfde.__main__ import start
start()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs signals of POSIX")
def test_ctrl_c_while_importing_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "onnxfde: interrupted\n")
