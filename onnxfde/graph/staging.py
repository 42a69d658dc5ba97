"""Files that are written completely before the first of them takes its place.

They wait in a temporary folder beside their target, whose lock its process holds. A folder with a
free lock belongs to a dead run: the next run that writes there puts back or finishes what that run
had begun (`graph/journal`), and removes the folder. Where there are no locks (Windows, some network
file systems), such folders stay; those of another machine, whose locks may not be seen here, stay
for a day.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from onnxfde.errors import OutputError
from onnxfde.graph.files import check_target, same_content
from onnxfde.graph.journal import (
    JOURNAL,
    CommitPlan,
    Replacement,
    contains,
    flush_folder,
    inode,
    opened_folder,
    read_journal,
)

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

STAGE_PREFIX = ".onnxfde-"
LOCK = "lock"
MOST_HOST_BYTES = 256
"""Bytes of the name of a machine that are kept: POSIX allows 255."""
FOREIGN_SECONDS = 86_400
"""How long a temporary folder of another machine is left alone. Chosen: no run takes a day; not
tuned."""


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
    """Wait until no other run commits in a folder; yields whether this can be known."""
    with contextlib.ExitStack() as stack:
        try:
            handle = stack.enter_context(opened_folder(folder))
        except OSError:
            yield False
            return
        locked = flocked(handle, wait=True)
        try:
            yield locked
        finally:
            if locked:
                fcntl.flock(handle, fcntl.LOCK_UN)  # a forked child may hold the handle, too


def clear_dead_runs(folder: Path) -> None:
    """Settle and remove the temporary folders of runs that were killed."""
    with only_run_in(folder) as alone:
        if alone:
            remove_dead_stages(folder)


def remove_dead_stages(folder: Path) -> None:
    """The same, for a caller that holds the lock of the folder."""
    for stage in sorted(folder.glob(f"{STAGE_PREFIX}*")):
        if stage.is_symlink() or not stage.is_dir():
            continue
        with contextlib.suppress(OSError), lock_of(stage) as free:
            if free:
                plan = read_journal(stage)
                if plan is not None:
                    plan.settle(stage)
                shutil.rmtree(stage, ignore_errors=True)


@contextlib.contextmanager
def lock_of(stage: Path) -> Iterator[bool]:
    """Whether the process that made a temporary folder is gone."""
    try:
        handle = os.open(stage / LOCK, os.O_RDWR)
    except FileNotFoundError:
        yield True
        return
    try:
        ours = os.read(handle, MOST_HOST_BYTES) in (b"", this_host())
        old = time.time() - os.fstat(handle).st_mtime > FOREIGN_SECONDS
        yield (ours or old) and flocked(handle, wait=False)
    finally:
        os.close(handle)


def this_host() -> bytes:
    """The name of this machine: locks of others may not be seen on a shared file system."""
    return socket.gethostname().encode(errors="replace")[:MOST_HOST_BYTES]


@dataclass(eq=False)
class Stage:
    """The files of one commit: data files, the model that decides, and reports beside it."""

    path: Path
    """The file whose rename decides: a model, or the only file."""
    folder: Path
    lock: int
    files: list[tuple[Path, Path]] = field(default_factory=list)
    beside: list[Stage] = field(default_factory=list)
    unneeded: Callable[[], tuple[str, ...]] = tuple
    """The data files that nothing may need once the model is in place."""
    check: Callable[[list[Path]], None] = lambda _: None
    """Raises if one of these targets must not be replaced; called when no other run commits."""

    @classmethod
    def made(cls, path: Path) -> Stage:
        """A new temporary folder beside a file; those of dead runs are removed."""
        with only_run_in(path.parent) as alone:
            if alone:
                remove_dead_stages(path.parent)
            folder = Path(tempfile.mkdtemp(prefix=STAGE_PREFIX, dir=path.parent))
            try:
                lock = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
                flocked(lock, wait=False)
                os.write(lock, this_host())
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        return cls(path, folder, lock)

    def temporary(self) -> Path:
        """The name of a new temporary file."""
        return self.folder / str(len(os.listdir(self.folder)))

    @contextlib.contextmanager
    def open(self, target: Path) -> Iterator[IO[bytes]]:
        """A stream whose bytes will become `target`."""
        temporary = self.temporary()
        with temporary.open("wb") as stream:
            yield stream
        self.add(temporary, target)

    def add(self, temporary: Path, target: Path) -> None:
        """Let a temporary file become `target`."""
        with temporary.open("r+b") as stream:
            os.fsync(stream.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        self.files.append((temporary, target))

    @property
    def bytes(self) -> int:
        """Bytes of all files, without those beside them."""
        return sum(temporary.stat().st_size for temporary, _ in self.files)

    def other_names(self) -> tuple[str, ...]:
        """The names of the files that take their places before the one that decides."""
        others = (target for _, target in self.files if target != self.path)
        return tuple(os.path.relpath(target, self.path.parent) for target in others)

    def write_beside(self, target: Path, text: str) -> None:
        """Let text become a file in any folder, together with the rest."""
        target = Path(os.path.realpath(target))
        check_target(target)
        with naming_target(target):
            stage = Stage.made(target)
            self.beside.append(stage)
            with stage.open(target) as stream:
                stream.write(text.encode())

    def commit(self) -> None:
        """Put all files in place, or none."""
        with only_run_in(self.path.parent):
            self.files = [pair for pair in self.files if self.is_new(*pair)]
            self.check([target for _, target in self.files])
            plan, restore = self.plan(), contextlib.ExitStack()
            try:
                if plan is not None and plan.data:
                    plan.write(self.folder)
                for stage in self.beside:
                    stage.replace_alone(restore)
                if plan is not None:
                    plan.carry_out(self.folder)
            except BaseException:
                if plan is None or not plan.settle(self.folder):
                    restore.close()
                raise
            if plan is not None:
                plan.settle(self.folder)

    def is_new(self, temporary: Path, target: Path) -> bool:
        """Whether a file must be put in place: a data file need not if it is there already."""
        return target == self.path or not same_content(target, temporary)

    def replace_alone(self, restore: contextlib.ExitStack) -> None:
        """Put the only file in place; `restore` can undo that as long as this stage exists."""
        ((temporary, target),), backup = self.files, self.folder / "old"
        if target.exists():
            shutil.copy2(target, backup)
        restore.callback(put_back, temporary, target, backup)
        os.replace(temporary, target)
        flush_folder(target.parent)

    def plan(self) -> CommitPlan | None:
        """What is to be done in the folder; None if no file of it changes."""
        folder = self.path.parent
        parts = {
            target: Replacement(
                temporary.name, os.path.relpath(target, folder), inode(temporary) or 0
            )
            for temporary, target in self.files
        }
        model = parts.pop(self.path, None)
        if model is None:
            return None
        missing = {p for target in parts for p in target.parents if not p.exists()}
        return CommitPlan(
            model,
            tuple(parts.values()),
            takes_away=self.path.exists()
            and any(contains(self.path, os.fsencode(target.name)) for target in parts),
            unneeded=self.unneeded(),
            new_folders=tuple(os.path.relpath(p, folder) for p in sorted(missing)),
        )

    def remove(self) -> None:
        """Remove the temporary folders, unless a commit that was cut short needs this one."""
        for stage in self.beside:
            stage.remove()
        if not (self.folder / JOURNAL).exists():
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self.lock)


def put_back(temporary: Path, target: Path, backup: Path) -> None:
    """Undo the replacement of a file beside the model, if it took place."""
    if temporary.exists():
        return
    if backup.exists():
        os.replace(backup, target)
    else:
        target.unlink(missing_ok=True)


@contextlib.contextmanager
def staged(path: Path) -> Iterator[Stage]:
    """Write files beside `path` and commit them if nothing goes wrong."""
    check_target(path)
    with naming_target(path):
        stage = Stage.made(path)
        try:
            yield stage
            stage.commit()
        finally:
            stage.remove()


@contextlib.contextmanager
def naming_target(path: Path) -> Iterator[None]:
    """Say which file cannot be written."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror or error})") from None


def copy_file(source: Path, target: Path) -> None:
    """Copy one file."""
    with staged(target) as stage, source.open("rb") as old, stage.open(target) as new:
        shutil.copyfileobj(old, new)


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    path = Path(os.path.realpath(path))
    with staged(path) as stage, stage.open(path) as stream:
        stream.write(text.encode())
