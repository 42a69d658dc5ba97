"""Runs the command in a forked child, watched: time, memory, signals.

This process has imported everything but opened no session of onnxruntime, so that a child costs
milliseconds. The child calls the entry point of `onnxfde` with `sys.argv` set, in the folder of its
case, with its output in files, and leaves as the interpreter would.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import io
import os
import pkgutil
import resource
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from benchmarks.fuzz.bases import bases
from benchmarks.fuzz.cases import Case
from benchmarks.fuzz.command_lines import Words

CPU_SECONDS = 10
"""CPU time after which a run counts as hanging."""
WALL_SECONDS = 60
"""The same on the clock: six times as long, because other work may hold the cores."""
ADDRESS_SPACE = 8 << 30
"""Bytes of memory that a run can ask for at all, so that the machine survives. A run that uses more
than `judging.MOST_MEGABYTES` has failed long before."""
LARGEST_FILE = 1 << 30
"""Bytes that a run can write to one file."""
IDLE_SECONDS = 10
"""The same for a run that waits for something and uses no CPU time at all."""
GRACE_SECONDS = 2
"""How long a hanging run has to say where it is, before it is killed."""
FLUSH_FAILED = 120
"""The exit code of Python when standard output cannot be flushed at the end."""
WARMING = (
    "optimize in.onnx out.onnx --data rows.npz --certify",
    "optimize in.onnx out.ort --semantics erode --eps 0.5",
    "optimize in.onnx out.onnx --int8 static --data rows.npz",
    "optimize in.onnx out.onnx --eps 0 --json -",
    "inspect in.onnx",
    "verify in.onnx in.onnx",
    "inspect missing.onnx",
    "inspect --no-such-option",
)
"""Command lines that import all that commands import."""


@dataclass(frozen=True)
class Run:
    """What a command did."""

    code: int
    """The exit code; below 0 the signal that ended it."""
    stdout: str
    stderr: str
    seconds: float
    """CPU time."""
    megabytes: float
    timed_out: bool


def load_everything() -> None:
    """Import all that a command may import, so that children need not."""
    import onnxfde

    for module in pkgutil.walk_packages(onnxfde.__path__, "onnxfde."):
        if not module.name.endswith(("__main__", ".runner")):
            importlib.import_module(module.name)
    for name in sorted(imported_later()):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def imported_later() -> set[str]:
    """The modules that commands import while they run; learnt from children, which may."""
    base, found = bases()["mul"], set[str]()
    files = {**base.files, "in.onnx": base.model.SerializeToString(), "rows.npz": base.data}
    for line in WARMING:
        case = Case("mul", 0, Words(tuple(line.split())), files)
        with scratch(None) as folder:
            case.write(folder)
            run(case, folder, report=folder / "modules")
            found |= set((folder / "modules").read_text().split())
    return found - sys.modules.keys()


def call(argv: list[str]) -> None:
    """The entry point, with these words."""
    from onnxfde.__main__ import start

    sys.argv = ["onnxfde", *argv]
    start()


def run(case: Case, folder: Path, more: tuple[str, ...] = (), report: Path | None = None) -> Run:
    """Run the command of a case in its folder, `more` words before it.

    The names of the modules that it loaded go to the file `report`, if there is one.
    """
    child = os.fork()
    if child == 0:
        be_command(case, folder, [*more, *case.words.argv], report)
    handle = os.pidfd_open(child)
    timed_out = not ended_in_time(child, handle)
    if timed_out:
        os.kill(child, signal.SIGXCPU)
        ended_within(handle, GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.close(handle)
    _, status, used = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return Run(
        code,
        (folder / "stdout").read_text("utf-8", "replace"),
        (folder / "stderr").read_text("utf-8", "replace"),
        used.ru_utime + used.ru_stime,
        used.ru_maxrss / 1024,
        timed_out or code == -signal.SIGXCPU,
    )


def ended_in_time(child: int, handle: int) -> bool:
    """Whether a run has ended before it took too long or stood still."""
    idle, last = 0, -1
    for _ in range(WALL_SECONDS):
        if ended_within(handle, 1):
            return True
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        used = int(fields[11]) + int(fields[12])
        idle, last = (idle + 1 if used == last and fields[0] == "S" else 0), used
        if idle == IDLE_SECONDS:
            break
    return False


def ended_within(handle: int, seconds: float) -> bool:
    """Whether a process has ended after at most this time."""
    waiting = select.poll()
    waiting.register(handle, select.POLLIN)
    return bool(waiting.poll(1000 * seconds))


def be_command(case: Case, folder: Path, argv: list[str], report: Path | None) -> NoReturn:
    """Become the command, and leave as the interpreter does."""
    code = 1
    try:
        os.setsid()
        set_limits()
        redirect(case, folder)
        code = exit_code(argv)
        if report is not None:
            report.write_text("\n".join(sys.modules))
    finally:
        os._exit(code)


def set_limits() -> None:
    """Bound what this process can use; where it stood when it hung or crashed goes to stderr."""
    limits = {
        resource.RLIMIT_CPU: CPU_SECONDS,
        resource.RLIMIT_AS: ADDRESS_SPACE,
        resource.RLIMIT_FSIZE: LARGEST_FILE,
        resource.RLIMIT_CORE: 0,
    }
    for kind, most in limits.items():
        slack = GRACE_SECONDS if kind == resource.RLIMIT_CPU else 0
        resource.setrlimit(kind, (most, most + slack))


def redirect(case: Case, folder: Path) -> None:
    """Standard streams and folders as the case wants them."""
    os.chdir(folder / "work")
    os.environ["TMPDIR"] = str(folder / "tmp")
    tempfile.tempdir = None
    os.dup2(opened_input(case), 0)
    (folder / "stdout").touch()
    error = os.open(folder / "stderr", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    os.dup2(error, 2)
    sys.stderr = io.TextIOWrapper(
        io.FileIO(2, "w", closefd=False), "utf-8", "backslashreplace", write_through=True
    )
    os.dup2(opened_output(case, folder), 1)
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), "utf-8")
    if case.stdout == "closed":
        os.close(1)
        sys.stdout = None  # as Python does
    faulthandler.enable(sys.stderr)
    faulthandler.register(signal.SIGXCPU, sys.stderr, chain=True)


def opened_input(case: Case) -> int:
    """A descriptor to read from: nothing, or a pipe that holds some bytes."""
    if case.stdin is None:
        return os.open(os.devnull, os.O_RDONLY)
    read, write = os.pipe()
    os.write(write, case.stdin)
    os.close(write)
    return read


def opened_output(case: Case, folder: Path) -> int:
    """A descriptor to write to."""
    if case.stdout == "full":
        return os.open("/dev/full", os.O_WRONLY)
    if case.stdout == "broken":
        read, write = os.pipe()
        os.close(read)
        return write
    return os.open(folder / "stdout", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)


def exit_code(argv: list[str]) -> int:
    """Run the command; uncaught errors and failing streams end as they would in Python."""
    try:
        call(argv)
        code: object = 0
    except SystemExit as error:
        code = error.code
    except BaseException:  # noqa: BLE001 - what Python itself does with it
        traceback.print_exc()
        code = 1
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        sys.stderr.write(f"Exception ignored in: stdout\n{type(error).__name__}: {error}\n")
        return FLUSH_FAILED
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


@contextlib.contextmanager
def scratch(keep: Path | None) -> Iterator[Path]:
    """A folder for one case, removed afterwards unless it is to be kept."""
    if keep is not None:
        keep.mkdir(parents=True)
        yield keep.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="fuzz-", ignore_cleanup_errors=True) as name:
        yield Path(name) / "case"
