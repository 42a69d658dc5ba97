"""A slice of the fuzzer: every trap once and some mutations end as they should."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.fuzz.cases import Case, case_of
from benchmarks.fuzz.command_lines import Words
from benchmarks.fuzz.engine import Run
from benchmarks.fuzz.finding import find
from benchmarks.fuzz.judging import Judge, snapshot
from benchmarks.fuzz.traps import traps
from onnxfde.command.main import boundary_line

ROOT = Path(__file__).parents[2]
MUTATIONS = 8
"""One of each of the first models."""


@pytest.mark.skipif(sys.platform != "linux", reason="the fuzzer forks, and reads /proc")
def test_no_trap_and_no_mutation_ends_badly() -> None:
    words = ["--quick", "--inputs", str(MUTATIONS), "--first", "1", "--no-page", "--jobs", "2"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COV")}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.fuzz", *words],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(traps()) + MUTATIONS:,} inputs, 0 failures" in done.stdout


def test_a_name_and_a_number_determine_an_input() -> None:
    first, again, other = case_of("mul", 7), case_of("mul", 7), case_of("mul", 8)
    assert (first.files, first.words) == (again.files, again.words)
    assert first.files["in.onnx"] != other.files["in.onnx"]


def test_traps_are_found_by_their_names() -> None:
    name, cases = next(iter(traps().items()))
    assert find(name, 0) is cases[0]


FAILED = "onnxfde: in.onnx is broken\n"


def judged(
    folder: Path,
    code: int = 0,
    stderr: str = "",
    stdout: str = "",
    megabytes: float = 100.0,
    timed_out: bool = False,
    argv: str = "optimize in.onnx out.onnx",
    **written: bytes,
) -> list[str]:
    """What the judge says of a command that wrote these files, `_` in their names for a dot."""
    case = Case("mul", 0, Words(tuple(argv.split()), "out.onnx"), case_of("mul", 0).files)
    case.write(folder)
    before = snapshot(folder)
    for name, content in written.items():
        (folder / "work" / name.replace("_", ".")).write_bytes(content)
    run = Run(code, stdout, stderr, 0.1, megabytes, timed_out)
    return Judge(case, folder, before, run).problems()


MODEL = case_of("mul", 0).files["in.onnx"]


def test_a_result_and_a_refusal_are_no_problems(tmp_path: Path) -> None:
    assert judged(tmp_path / "a", out_onnx=MODEL) == []
    assert judged(tmp_path / "b", 1, FAILED) == []


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        ({"code": 1, "stderr": "Traceback (most recent call last)\n"}, "traceback"),
        ({"code": 1, "stderr": boundary_line(KeyError("k"), "optimize")}, "boundary"),
        ({"code": 1, "stderr": boundary_line(MemoryError(), None)}, "boundary"),
        ({"code": 1, "stderr": "onnxfde: two\nlines\n"}, "not one line"),
        ({"code": 1, "stderr": ""}, "not one line"),
        ({"code": -11}, "signal 11"),
        ({"code": 3, "out_onnx": MODEL}, "exit code 3"),
        ({"code": 120}, "exit code 120"),
        ({"code": 1, "stderr": FAILED, "megabytes": 1100.0}, "memory"),
        ({"code": -9, "timed_out": True}, "hang"),
        ({"stderr": "RuntimeWarning: overflow\n", "out_onnx": MODEL}, "warning"),
        ({"stderr": "something\n", "out_onnx": MODEL}, "noise on stderr"),
        ({}, "OUT missing"),
        ({"out_onnx": b""}, "OUT damaged"),
        ({"out_onnx": MODEL, "in_onnx": b"lost"}, "changed: a file"),
        ({"code": 1, "stderr": FAILED, "out_onnx": MODEL}, "changed: a new file"),
        ({"out_onnx": MODEL, "_onnxfde-1": b""}, "stray"),
        (
            {
                "argv": "optimize in.onnx out.onnx --json -",
                "stdout": '{"a": NaN}',
                "out_onnx": MODEL,
            },
            "bad JSON",
        ),
    ],
)
def test_the_judge_sees(what: dict[str, object], problem: str, tmp_path: Path) -> None:
    assert judged(tmp_path / "case", **what) == [problem]  # type: ignore[arg-type]
