"""Python without what only POSIX systems have, as on Windows: everything but arm64 works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

WITHOUT_POSIX = """
import os, signal, sys

for name in ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty", "syslog"):
    sys.modules[name] = None
for name in ("fork", "forkpty", "getuid", "geteuid", "getgid", "getpgid", "killpg", "setsid",
             "sched_getaffinity", "sysconf", "set_blocking", "mkfifo", "chown"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGHUP", "SIGALRM", "SIGUSR1", "SIGCHLD", "SIGPIPE"):
    if hasattr(signal, name):
        delattr(signal, name)
"""

USE = """
import onnxfde
from onnxfde.demo import demo_data, demo_model

for name in onnxfde.__all__:
    getattr(onnxfde, name)
result = onnxfde.optimize(demo_model(), eps=0.1, data=demo_data(), quotient="refit")
assert result.report.changed and not result.report.verification.unverified
result.save("python.onnx")
result.save("python.ort")
assert onnxfde.verify(demo_model(), "python.onnx").relative_l2 < 1
sys.argv = ["onnxfde", "optimize", str(demo_model()), "command.onnx", "--quotient", "refit", "-q"]
from onnxfde.command.main import main
main()
"""


def test_import_optimize_and_the_command_work_without_posix(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX + USE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == ["command.onnx", "python.onnx", "python.ort"]


def test_the_test_would_notice_a_module_that_only_posix_has() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX + "import fcntl"], capture_output=True, text=True
    )
    assert "ModuleNotFoundError" in done.stderr
