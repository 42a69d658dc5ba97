"""Files that are complete before they get their names.

    .onnxfde-<process>-<16 hex digits>.tmp  →  written, flushed  →  one rename

A draft lies beside its target. It is made exclusively, its process holds its lock and removes it;
drafts of processes that were killed, whose locks are free, are removed by the next run that writes
there. Where there are no locks (Windows, some network file systems), they stay.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedRandom
from pathlib import Path

from onnxfde.errors import OutputError
from onnxfde.graph.files import check_target, same_content

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

DRAFT = re.compile(r"\.onnxfde-[0-9]+-[0-9a-f]{16}\.tmp")
"""How a draft is called."""
NEW = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0)
"""How a draft is opened: if anything has its name, even a link, that is an error."""
OLD = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""How the draft of another process is opened, which may be something else by then."""


def flocked(handle: int, wait: bool) -> bool:
    """Lock an open file for this process; returns whether it could be locked."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


@contextlib.contextmanager
def only_run_in(folder: Path) -> Iterator[bool]:
    """Wait until no other run works in a folder; yields whether that is so.

    Windows has no such locks: there it is taken for granted.
    """
    with contextlib.ExitStack() as stack:
        locked = fcntl is None
        with contextlib.suppress(OSError):
            handle = stack.enter_context(opened_folder(folder))
            if locked := flocked(handle, wait=True):
                stack.callback(fcntl.flock, handle, fcntl.LOCK_UN)  # forked children hold it, too
        yield locked


@contextlib.contextmanager
def opened_folder(folder: Path) -> Iterator[int]:
    """A handle of a folder; OSError where there is no such thing, as on Windows."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield handle
    finally:
        os.close(handle)


def flush_folder(folder: Path) -> None:
    """Let the names in a folder survive a crash, where the system can do that."""
    with contextlib.suppress(OSError), opened_folder(folder) as handle:
        os.fsync(handle)


@dataclass(frozen=True, eq=False)
class Draft:
    """A file without its name."""

    path: Path
    stream: BufferedRandom
    mode: int | None = None
    """The permissions that it gets; None leaves those that new files have."""

    @property
    def bytes(self) -> int:
        """How large it is."""
        self.stream.flush()
        return self.path.stat().st_size

    def sha256(self) -> str:
        """The hash of its bytes, which need not be in memory together."""
        self.stream.seek(0)
        return hashlib.file_digest(self.stream, "sha256").hexdigest()

    def flush(self) -> None:
        """Let its bytes survive a crash."""
        self.stream.flush()
        os.fsync(self.stream.fileno())
        if self.mode is not None:
            os.chmod(self.path, self.mode)
        if fcntl is None:  # Windows renames no file that is open
            self.stream.close()

    def replace(self, target: Path) -> None:
        """Take the place of a file, or an empty one."""
        self.flush()
        os.replace(self.path, target)
        flush_folder(target.parent)

    def is_at(self, target: Path) -> bool:
        """Whether a file has this content already; OutputError if it has another one."""
        if not os.path.lexists(target):
            return False
        if os.path.islink(target) or not same_content(target, self.path):
            raise OutputError(f"{target} exists and holds something else; move it out of the way")
        return True

    def create(self, target: Path) -> None:
        """Take a place that must be empty."""
        target.parent.mkdir(parents=True, exist_ok=True)
        rename_to_new(self.path, target)
        flush_folder(target.parent)


def rename_to_new(source: Path, target: Path) -> None:
    """Give a file a name that nothing has; else FileExistsError.

    The first name goes at once: onnx reads no weights from a file with two.
    """
    if fcntl is None:  # Windows renames to no name that is taken
        os.rename(source, target)
        return
    try:
        os.link(source, target)
    except OSError:  # perhaps a file system without hard links
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        os.rename(source, target)
    else:
        os.unlink(source)


@contextlib.contextmanager
def draft(target: Path, like: Path | None = None) -> Iterator[Draft]:
    """A new draft beside its target, with the permissions of `like`, or of what it replaces."""
    folder, mode = target.parent, mode_of(like or target)
    path = folder / f".onnxfde-{os.getpid()}-{secrets.token_hex(8)}.tmp"
    with contextlib.ExitStack() as stack:
        with only_run_in(folder) as alone:
            if alone:
                remove_dead_drafts(folder)
            stack.callback(path.unlink, missing_ok=True)
            try:
                handle = os.open(path, NEW, 0o666 if mode is None else mode | 0o600)
            except FileExistsError:
                stack.pop_all()
                raise
            stream = stack.enter_context(os.fdopen(handle, "w+b"))
            flocked(handle, wait=False)
        yield Draft(path, stream, mode)


def mode_of(file: Path) -> int | None:
    """The permissions of a file; None if there is none."""
    try:
        return stat.S_IMODE(file.stat().st_mode)
    except OSError:
        return None


def remove_dead_drafts(folder: Path) -> None:
    """Remove drafts whose processes are gone, for a caller that holds the lock of the folder."""
    with os.scandir(folder) as entries:
        found = [e for e in entries if DRAFT.fullmatch(e.name) and e.is_file(follow_symlinks=False)]
    for entry in found:
        with contextlib.suppress(OSError):
            handle = os.open(entry.path, OLD)
            try:
                if stat.S_ISREG(os.fstat(handle).st_mode) and flocked(handle, wait=False):
                    os.unlink(entry.path)
            finally:
                os.close(handle)


@contextlib.contextmanager
def naming_target(path: Path) -> Iterator[None]:
    """Say which file cannot be written."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror or error})") from None


def copy_file(source: Path, target: Path) -> None:
    """Copy one file."""
    check_target(target)
    with naming_target(target), draft(target) as new, source.open("rb") as old:
        shutil.copyfileobj(old, new.stream)
        new.replace(target)


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    path = Path(os.path.realpath(path))
    check_target(path)
    with naming_target(path), draft(path) as new:
        new.stream.write(text.encode())
        new.replace(path)
