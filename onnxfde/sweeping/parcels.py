"""Files that a point needs, where they are or as bytes that travel with the task."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from onnxfde.errors import DataError, ModelError
from onnxfde.graph import files
from onnxfde.graph.overwriting import InputFiles, data_files, files_read


@dataclass(frozen=True)
class Parcel:
    """A file with those that belong to it, or a folder."""

    path: Path
    """What is given to `optimize`."""
    root: Path
    """The folder in which all of them lie."""
    names: tuple[str, ...]
    """All files, from the root."""
    contents: tuple[bytes, ...] | None = None
    """Their bytes, if they travel; None: they are read where they are."""

    @classmethod
    def of_model(cls, model: Path) -> Self:
        """A model with its external data."""
        if not model.is_file():
            raise ModelError(f"{model}: no such file")
        root = model.parent
        names = [model.name, *(os.path.relpath(f, root) for f in data_files(model))]
        return cls(model, root, tuple(dict.fromkeys(names)))

    @classmethod
    def of_data(cls, data: Path) -> Self:
        """A file or a folder with data."""
        if not data.exists():
            raise DataError(f"--data {data}: no such file")
        root = data if data.is_dir() else data.parent
        found = sorted({path for path, _ in files_read(InputFiles((), data))})
        return cls(data, root, tuple(os.path.relpath(path, root) for path in found))

    def sha256(self) -> str:
        """A hash of all names and bytes."""
        digest = hashlib.sha256()
        for name in self.names:
            own = files.sha256(self.root / name)
            digest.update(f"{os.fsencode(name)!r} {own}\n".encode())
        return digest.hexdigest()

    def packed(self) -> Parcel:
        """The same with the bytes of all files."""
        try:
            read = tuple((self.root / name).read_bytes() for name in self.names)
        except OSError as error:
            raise ModelError(f"{self.path}: cannot be read ({error.strerror})") from None
        return replace(self, contents=read)

    def unpacked(self, folder: Path) -> Path:
        """Where `optimize` finds it: in a folder of its own, if it travelled."""
        if self.contents is None:
            return self.path
        for name, content in zip(self.names, self.contents, strict=True):
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return folder if self.path == self.root else folder / self.path.name
