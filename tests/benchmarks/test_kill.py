"""A slice of `benchmarks.kill`: runs that are killed before events of the commit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.common.kill_scenarios import digest, write_input

SLICE = """
import signal, sys
from pathlib import Path
from benchmarks.common.kill_scenarios import SCENARIOS, Template
from benchmarks.common.stopped_commands import Stop
from benchmarks.kill import Case, judged

scratch = Path(sys.argv[1])
names = ("old OUT, external", "in place, external", "hostile names, old OUT, external")
chosen = [s for s in SCENARIOS if s.name in names]
templates = [Template.made(s, scratch / str(i)) for i, s in enumerate(chosen)]
cases = [
    Case("", i, Stop("event", template.events - back, signum))
    for i, template in enumerate(templates)
    for back, signum in zip((2, 9, 16), [signal.SIGKILL, signal.SIGINT] * 2)
]
found = [judged(templates, scratch, pair) for pair in enumerate(cases)]
print(*[v for v in found if v.faults], sep="\\n")
print(len(found), sum(len(v.faults) for v in found), *sorted({v.state for v in found}))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_runs_leave_whole_models(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SLICE, str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    count, faults, *states = done.stdout.splitlines()[-1].split()
    assert (count, faults) == ("9", "0"), done.stdout
    assert {"new", "old"} <= {*states} <= {"absent", "new", "old"}


def test_the_benchmark_notices_data_of_another_model(tmp_path: Path) -> None:
    path = tmp_path / "in.onnx"
    assert digest(path) is None
    write_input(path, "w.bin")
    whole = digest(path)
    data = tmp_path / "w.bin"
    raw = data.read_bytes()
    data.write_bytes(raw[:-4] + b"\0\0\0\1")
    assert digest(path) != whole
    data.write_bytes(raw)
    assert digest(path) == whole
