"""A folder of .npz files as data: their rows, one file after the other, sorted by name."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from onnxfde.errors import DataError
from onnxfde.graph import files
from onnxfde.numbers import Array
from onnxfde.running.data_files import ArrayFile, StoredArray
from onnxfde.running.image_inputs import shape_text


@dataclass(frozen=True, eq=False)
class ArrayFolder:
    """The archives of a folder, which hold the same arrays."""

    folder: Path
    archives: tuple[ArrayFile, ...]

    @classmethod
    def opened(cls, folder: Path) -> ArrayFolder | None:
        """The archives in a folder, not in its subfolders; None if there are none."""
        try:
            paths = sorted(p for p in folder.iterdir() if p.suffix.lower() == ".npz")
        except OSError as error:
            raise DataError(f"{folder}: cannot be read ({error.strerror or error})") from None
        return cls(folder, tuple(map(ArrayFile.opened, paths))) if paths else None

    @property
    def names(self) -> tuple[str, ...]:
        """The arrays that all archives hold; DataError if one lacks some."""
        first = self.archives[0].names or ()
        for archive in self.archives[1:]:
            missing = sorted(set(first) ^ set(archive.names or ()))
            if missing:
                raise DataError(
                    f"{archive.path} and {self.archives[0].path} do not hold the same arrays: "
                    f"'{missing[0]}' is in one of them only"
                )
        return first

    @property
    def source(self) -> str:
        """What reports call these files."""
        return f"{self.folder} ({len(self.archives):,} files)"

    def arrays(self, places: Mapping[str, str]) -> dict[str, StoredArray]:
        """The arrays of these names; DataError if rows side by side are from different archives."""
        found = {name: self.array(place) for name, place in places.items()}
        for archive in self.archives:
            first: dict[int, tuple[str, int]] = {}
            for name, place in places.items():
                own = place, archive.array(place).shape[0]
                other = first.setdefault(found[name].shape[0], own)
                if own[1] != other[1]:
                    raise DataError(
                        f"{archive.path}: '{own[0]}' has {own[1]} rows, '{other[0]}' has {other[1]}"
                    )
        return found

    def array(self, name: str) -> StoredArray:
        """An array of all archives, one after the other."""
        parts = [archive.array(name) for archive in self.archives]
        first = parts[0]
        for archive, part in zip(self.archives, parts, strict=True):
            if part.shape[1:] != first.shape[1:] or part.dtype != first.dtype:
                kinds = [f"{p.dtype} {shape_text(('N', *p.shape[1:]))}" for p in (part, first)]
                raise DataError(
                    f"{archive.path}: '{name}' is {kinds[0]}, in {self.archives[0].path} it is "
                    f"{kinds[1]}"
                )

        def blocks() -> Iterator[Array]:
            for part in parts:
                yield from part.blocks()

        rows = sum(part.shape[0] for part in parts)
        return StoredArray((rows, *first.shape[1:]), first.dtype, blocks)

    def sha256(self) -> str:
        """A hash of all files, with their names."""
        digest = hashlib.sha256()
        for archive in self.archives:
            digest.update(os.fsencode(archive.path.name) + b"\0")
            digest.update(bytes.fromhex(files.sha256(archive.path)))
        return digest.hexdigest()
