"""How a model and its data files take their places, so that a kill at any moment does no harm.

    write and flush new files → write journal → [move old model away] → [move old data away]
    → rename new data → rename new model → [delete old data] → remove journal

The rename of the model decides. A journal that is found before it means: put everything back; one
that is found after it means: finish. An old model that reads a data file which is replaced is moved
away first, so that it is never seen with new data. Both `roll_back` and `finish` look only at the
disk and may be repeated, in this process or in the next one.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

JOURNAL = "journal.json"
TAKEN = "taken"
"""The name of the old model while it is away."""
LARGEST_OTHER_FILE = 1 << 24
"""Bytes up to which a file that is not called .onnx is searched for the name of a data file.
Chosen: models with external weights are far smaller; not tuned."""


@dataclass(frozen=True)
class Replacement:
    """A file of the stage folder and the place it goes to, relative to the folder of the model."""

    temporary: str
    target: str
    inode: int

    @property
    def backup(self) -> str:
        """The name in the stage folder of what was in that place before."""
        return f"{self.temporary}.old"


@dataclass(frozen=True)
class CommitPlan:
    """Everything that one commit does in the folder of the model."""

    model: Replacement
    data: tuple[Replacement, ...] = ()
    takes_away: bool = False
    """Whether the old model is moved away before its data is replaced."""
    unneeded: tuple[str, ...] = ()
    """Data files of the old model, which are deleted in the end unless another model reads them."""
    new_folders: tuple[str, ...] = ()
    """Folders that are made for data files."""

    def write(self, stage: Path) -> None:
        """Write the journal, so that it survives a crash."""
        with (stage / JOURNAL).open("w", encoding="utf-8") as stream:
            json.dump(asdict(self), stream)
            stream.flush()
            os.fsync(stream.fileno())
        flush_folder(stage)

    def carry_out(self, stage: Path) -> None:
        """Rename everything into place."""
        folder = stage.parent
        if self.takes_away:
            os.rename(folder / self.model.target, stage / TAKEN)
        for name in self.new_folders:
            (folder / name).mkdir(exist_ok=True)
        for part in self.data:
            with contextlib.suppress(FileNotFoundError):
                os.rename(folder / part.target, stage / part.backup)
            os.replace(stage / part.temporary, folder / part.target)
        if self.data:
            flush_folder(folder)
        os.replace(stage / self.model.temporary, folder / self.model.target)
        flush_folder(folder)

    def settle(self, stage: Path) -> bool:
        """Undo what was begun, or finish it if the model is in place; returns which."""
        decided = not os.path.lexists(stage / self.model.temporary)
        if decided:
            self.finish(stage)
        else:
            self.roll_back(stage)
        (stage / JOURNAL).unlink(missing_ok=True)
        return decided

    def finish(self, stage: Path) -> None:
        """Delete the data files of the old model that nothing reads any more."""
        folder = stage.parent
        for name in self.unneeded:
            old = folder / name
            with contextlib.suppress(OSError):
                if old.is_file() and not old.is_symlink() and not mentions(old, folder):
                    old.unlink()

    def roll_back(self, stage: Path) -> None:
        """Put the old files back; what somebody else put in their place since stays."""
        folder, model = stage.parent, stage.parent / self.model.target
        for part in self.data:
            target, backup = folder / part.target, stage / part.backup
            if inode(target) == part.inode and not os.path.lexists(stage / part.temporary):
                if not os.path.lexists(backup) and not mentions(target, folder, every_file=False):
                    target.unlink()
                elif os.path.lexists(backup):
                    os.replace(backup, target)
            elif os.path.lexists(backup) and not os.path.lexists(target):
                os.replace(backup, target)
        if os.path.lexists(stage / TAKEN) and not os.path.lexists(model):
            os.replace(stage / TAKEN, model)
        for name in reversed(self.new_folders):
            with contextlib.suppress(OSError):
                (folder / name).rmdir()
        flush_folder(folder)


def read_journal(stage: Path) -> CommitPlan | None:
    """The journal of a run that did not end, if it got that far.

    A journal that names anything outside its folder is not one of ours.
    """
    try:
        found: dict[str, Any] = json.loads((stage / JOURNAL).read_text(encoding="utf-8"))
        parts = [Replacement(**part) for part in (found["model"], *found["data"])]
        unneeded, new_folders = tuple(found["unneeded"]), tuple(found["new_folders"])
        plan = CommitPlan(
            parts[0], tuple(parts[1:]), bool(found["takes_away"]), unneeded, new_folders
        )
        inner = {part.temporary for part in parts}
        outer = {part.target for part in parts} | {*plan.unneeded, *plan.new_folders}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    root = os.path.realpath(stage.parent)
    safe = all(is_inside(root, name) for name in outer) and all(
        name == os.path.basename(name) for name in inner
    )
    return plan if safe else None


def is_inside(root: str, name: str) -> bool:
    """Whether a relative name stays in a folder."""
    found = os.path.realpath(os.path.join(root, name))
    return not os.path.isabs(name) and Path(found).is_relative_to(root)


def inode(path: Path) -> int | None:
    """The number of a file on its file system; None if there is none."""
    try:
        return os.lstat(path).st_ino
    except OSError:
        return None


def mentions(data: Path, folder: Path, every_file: bool = True) -> list[Path]:
    """The files between a data file and the folder of a model that may read it.

    A model stores the names of its data files as they are, so whatever contains the name may read
    it; a file that cannot be searched counts too, and so does a link to the data file.
    """
    between = [p for p in data.parents if p == folder or folder in p.parents]
    name, real = os.fsencode(data.name), os.path.realpath(data)
    return [
        file
        for place in between
        for file in sorted(place.iterdir())
        if file != data
        and (
            os.path.realpath(file) == real
            if file.is_symlink()
            else may_be_model(file, every_file) and contains(file, name)
        )
    ]


def may_be_model(file: Path, every_file: bool) -> bool:
    """Whether a file is looked into for the names of data files."""
    if not file.is_file():
        return False
    if file.suffix.lower() == ".onnx":
        return True
    return every_file and file.stat().st_size <= LARGEST_OTHER_FILE


def contains(file: Path, name: bytes) -> bool:
    """Whether bytes occur in a file; a file that cannot be read may contain them."""
    try:
        with file.open("rb") as stream:
            if not os.fstat(stream.fileno()).st_size:
                return False
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as raw:
                return raw.find(name) >= 0
    except OSError:
        return True


def flush_folder(folder: Path) -> None:
    """Let the names in a folder survive a crash, where the system can do that."""
    with contextlib.suppress(OSError), opened_folder(folder) as handle:
        os.fsync(handle)


@contextlib.contextmanager
def opened_folder(folder: Path) -> Iterator[int]:
    """A handle of a folder; OSError where there is no such thing, as on Windows."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield handle
    finally:
        os.close(handle)
