"""What a command may leave behind: an exit code, at most one line of error, whole files."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from google.protobuf.message import DecodeError
from onnx import ModelProto
from onnx.external_data_helper import _get_all_tensors, uses_external_data

from benchmarks.fuzz.cases import MODEL, Case
from benchmarks.fuzz.engine import Run

MOST_MEGABYTES = 1024
"""Memory that no run on such small files needs."""
CODES = (0, 1, 2, 3)
UNCHANGED = 3
TRACEBACK = "Traceback (most recent call last)"
BOUNDARY = "shows where"
"""How the line ends that stands for an error nobody foresaw, or for too little memory."""
WARNINGS = re.compile(
    r"\w+Warning\b|\[[EWFI]:onnxruntime|terminate called|libprotobuf|Exception ignored"
    r"|^(WARNING|ERROR|INFO):|Fatal Python error",
    re.MULTILINE,
)
"""Lines of Python's warnings, and of libraries that write to stderr themselves."""
NOTES = re.compile(r"note: |layer \d+ of \d+ '")
"""Lines that are not errors: notes, and what became of each layer."""
STRAY = ".onnxfde-"
"""How the names of temporary files begin."""
LARGE = 1 << 24
"""Bytes from which a file is compared by its size and time instead of its content."""

Files = dict[str, tuple[object, ...]]


def snapshot(folder: Path) -> Files:
    """All that lies below a folder: kind and content."""
    found: Files = {}
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(parent, name)
            found[str(path.relative_to(folder))] = content(path)
    return {name: what for name, what in found.items() if name not in ("stdout", "stderr")}


def content(path: Path) -> tuple[object, ...]:
    """What tells whether a file was changed."""
    about = path.lstat()
    if stat.S_ISLNK(about.st_mode):
        return ("link", os.readlink(path))
    if not stat.S_ISREG(about.st_mode):
        return (stat.S_IFMT(about.st_mode),)
    if about.st_size >= LARGE:
        return (about.st_size, about.st_mtime_ns)
    return ("file", hashlib.sha256(path.read_bytes()).hexdigest())


@dataclass(frozen=True)
class Judge:
    """A case, what its folder held before, and what its command did."""

    case: Case
    folder: Path
    before: Files
    run: Run

    def problems(self) -> list[str]:
        """Everything that must not happen, in short; the worst first."""
        return [*self.of_process(), *self.of_stderr(), *self.of_files(), *self.of_json()]

    def of_process(self) -> Iterator[str]:
        """Time, memory, signals and exit codes."""
        code = self.run.code
        if self.run.timed_out:
            yield "hang"
        elif code < 0:
            yield f"signal {-code}"
        elif code not in CODES:
            yield f"exit code {code}"
        elif self.case.words.code not in (None, code):
            yield f"exit code {code}, not {self.case.words.code}"
        elif code == UNCHANGED and "--fail-if-unchanged" not in self.case.words.argv:
            yield "exit code 3"
        if self.run.megabytes > MOST_MEGABYTES:
            yield "memory"

    def of_stderr(self) -> Iterator[str]:
        """Tracebacks, the boundary, warnings, and errors that are not one line."""
        text = self.run.stderr
        if TRACEBACK in text:
            yield "traceback"
        elif BOUNDARY in text:
            yield "boundary"
        elif self.run.code >= 0 and WARNINGS.search(text):
            yield "warning"
        elif self.run.code == 1 and not self.is_one_line(text):
            yield "not one line"
        elif self.run.code == 0 and not self.has_notes_only(text):
            yield "noise on stderr"
        elif self.run.code == 2 and not (
            self.is_one_line(text) or text.startswith(("Usage: ", "Error: "))
        ):
            yield "not one line"

    def has_notes_only(self, text: str) -> bool:
        """Whether a success says nothing on stderr but notes, or the steps of -v."""
        return "-v" in self.case.words.argv or all(map(NOTES.match, text.splitlines()))

    def is_one_line(self, text: str) -> bool:
        """Whether a failure is explained in one line, beside notes and the steps of -v."""
        lines = [line for line in text.splitlines() if not NOTES.match(line)]
        if "-v" in self.case.words.argv:
            lines = lines[-1:]
        if not lines and self.case.stdout == "broken":
            return True
        if not lines and self.case.words.command == "verify":
            return "not verified" in self.run.stdout.lower()
        return len(lines) == 1 and lines[0].startswith("onnxfde: ")

    def of_files(self) -> Iterator[str]:
        """Inputs that changed, results that are missing or damaged, things left behind."""
        after, words = snapshot(self.folder), self.case.words
        changed = {n for n in after.keys() | self.before if after.get(n) != self.before.get(n)}
        if any(Path(name).name.startswith(STRAY) for name in changed):
            yield "stray"
        if any(name.startswith("tmp/") for name in changed):
            yield "left in TMPDIR"
        done = self.run.code in (0, UNCHANGED)
        done = done or (self.case.stdout != "file" and f"work/{words.out}" in after)
        written = {words.out} if done and words.out else set()
        written |= {words.json} if words.json and (done or words.command == "verify") else set()
        touched = {n for n in changed if not n.startswith("tmp/") and STRAY not in n}
        if wrong := sorted(name for name in touched if not self.may_change(name, written)):
            yield "changed: " + ("a new file" if wrong[0] not in self.before else "a file")
        if done and words.out:
            yield from self.of_output(self.folder / "work" / words.out)

    def may_change(self, name: str, written: set[str]) -> bool:
        """Whether a file may differ: it is written, or new and belongs to a model that is."""
        work, out = self.folder / "work", self.case.words.out
        file = os.path.realpath(self.folder / name)
        if any(file == os.path.realpath(work / target) for target in written):
            return file not in self.inputs() or self.is_in_place(file)
        return out in written and name not in self.before

    def is_in_place(self, file: str) -> bool:
        """Whether a file is both the model that is read and the one that is written."""
        words, work = self.case.words, self.folder / "work"
        return words.out is not None and file == os.path.realpath(work / words.argv[1])

    def inputs(self) -> set[str]:
        """The files that the command reads."""
        argv, named = self.case.words.argv, data_files(self.case.files.get(MODEL, b""))
        names = [*argv[1:2], *(n for n in self.case.files if n in named)]
        names += argv[2:3] if self.case.words.command == "verify" else ()
        names += [word for option, word in pairwise(argv) if option == "--data"]
        return {os.path.realpath(self.folder / "work" / name) for name in names}

    def of_output(self, out: Path) -> Iterator[str]:
        """A result that is not a whole model."""
        if not os.path.isfile(out):
            yield "OUT missing"
            return
        raw = out.read_bytes()
        if out.suffix.lower() == ".ort":
            if raw[4:8] != b"ORTM":
                yield "OUT damaged"
            return
        try:
            whole = ModelProto.FromString(raw).HasField("graph")
        except DecodeError:
            whole = False
        if not whole:
            yield "OUT damaged"

    def of_json(self) -> Iterator[str]:
        """JSON that is missing or not strict."""
        argv = self.case.words.argv
        if self.run.code != 0 or "--json" not in argv:
            return
        target = argv[argv.index("--json") + 1]
        file = self.folder / "work" / target
        try:
            text = self.run.stdout if target == "-" else file.read_text("utf-8")
            if self.case.stdout == "file":
                json.loads(text, parse_constant=refuse_constant)
        except (ValueError, OSError):
            yield "bad JSON"


def data_files(raw: bytes) -> set[str]:
    """The names of the files with external data of a model."""
    try:
        tensors = list(_get_all_tensors(ModelProto.FromString(raw)))
    except (DecodeError, RecursionError):
        return set()
    return {
        str(entry.value)
        for tensor in tensors
        if uses_external_data(tensor)
        for entry in tensor.external_data
        if entry.key == "location"
    }


def refuse_constant(name: str) -> None:
    """NaN and Infinity, which Python reads and JSON does not have."""
    raise ValueError(f"{name} is not JSON")
