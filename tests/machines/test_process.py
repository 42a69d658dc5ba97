"""Child processes: they end with bench, and say why they failed."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import onnx
import pytest

from onnxfde.machines.targets.base import answers_in
from onnxfde.machines.targets.process import attended
from onnxfde.machines.targets.runner import RESULT
from tests.machines.processes import runners, running_bench, wait_until
from tests.models import mlp, twins


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(mlp(*twins()), tmp_path / "a.onnx")
    return tmp_path / "a.onnx"


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGHUP, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_a_killed_bench(model: Path, tmp_path: Path, how: int) -> None:
    marked = tmp_path / "only-here.onnx"
    marked.write_bytes(model.read_bytes())
    with running_bench(marked, "--seconds", "120", TMPDIR=str(tmp_path)) as process:
        assert wait_until(lambda: bool(runners(tmp_path)))
        process.send_signal(how)
        process.wait(20)
    assert wait_until(lambda: not runners(tmp_path)), runners(tmp_path)
    if how != signal.SIGKILL:
        assert not list(tmp_path.glob("onnxfde-*"))


def test_a_process_that_hangs_is_ended() -> None:
    done = attended([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.5)
    assert done.reason == "it took longer than 0.5 s; raise --timeout or lower --seconds"


def test_what_a_process_started_itself_is_not_waited_for() -> None:
    """It holds on to the standard output that it was given."""
    code = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid)"
    done = attended([sys.executable, "-c", code], timeout=30)
    os.kill(int(done.out), signal.SIGKILL)
    assert (done.code, done.expired) == (0, None)


def test_an_interruption_while_the_deadline_starts_leaves_no_timer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A timer that is still running would keep this process from ending."""
    start = threading.Timer.start

    def interrupted(timer: threading.Timer) -> None:
        start(timer)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Timer, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        attended([sys.executable, "-c", "import time; time.sleep(60)"], timeout=60)
    assert wait_until(
        lambda: not any(isinstance(thread, threading.Timer) for thread in threading.enumerate())
    )


def test_a_process_says_why_it_failed() -> None:
    done = attended([sys.executable, "-c", "import sys; sys.exit('no luck')"])
    assert (done.code, done.reason) == (1, "no luck")
    done = attended([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    assert done.reason == "signal 9"


def test_an_answer_that_was_cut_off_is_no_answer() -> None:
    whole = RESULT + '{"models": []}'
    assert answers_in(f"motd\n{whole}\n{whole[:-3]}\n") == [{"models": []}]
