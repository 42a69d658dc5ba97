"""Data files, read in blocks of rows: .npy, and the members of .npz, compressed or not.

Nothing is unpacked before the header of an array was compared with the size of the file, or of the
member of the archive; what is longer than memory is never read at once.
"""

from __future__ import annotations

import math
import stat
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from onnxfde.errors import DataError
from onnxfde.numbers import Array

NPY, ZIP = b"\x93NUMPY", b"PK"
"""How the files begin."""
BLOCK = 2**22
"""Bytes that are read at a time. Chosen; not tuned."""
COLUMN_ORDER = 2**28
"""Most bytes of an array stored column by column in an archive, which is unpacked at once. Chosen;
not tuned."""
FILE_ERRORS = (
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    SyntaxError,
    OverflowError,
    RecursionError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What numpy and zipfile raise for files that are damaged, encrypted or made to do harm."""


@dataclass(frozen=True, eq=False)
class StoredArray:
    """An array that is read in blocks of rows."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    blocks: Callable[[], Iterator[Array]]
    """All rows in order, some at a time."""

    @classmethod
    def of(cls, array: Array) -> StoredArray:
        """An array in memory."""

        def blocks() -> Iterator[Array]:
            step = rows_per_block(array.shape, array.dtype)
            return (array[i : i + step] for i in range(0, len(array), step))

        return cls(array.shape, array.dtype, blocks)


@dataclass(frozen=True, eq=False)
class ArrayFile:
    """A .npy file (one array without a name) or an .npz archive."""

    path: Path
    names: tuple[str, ...] | None
    """The names of the arrays; None for a .npy file."""

    @classmethod
    def opened(cls, path: Path) -> ArrayFile:
        """The file, if it is one of the two kinds."""
        with naming_the_file(path):
            if not stat.S_ISREG(path.stat().st_mode):
                raise DataError(f"{path} is no regular file; give a .npz or .npy file")
        with naming_the_file(path), path.open("rb") as stream:
            start = stream.read(len(NPY))
            if start == NPY:
                return cls(path, None)
            if not start:
                raise DataError(f"{path} cannot be read as .npz or .npy (it is empty)")
            if not start.startswith(ZIP):
                raise DataError(
                    f"{path} is neither .npz nor .npy; give one of these, a .csv file, or a folder "
                    f"of images or .npz files"
                )
            with zipfile.ZipFile(stream) as archive:
                found = (n.removesuffix(".npy") for n in archive.namelist() if n.endswith(".npy"))
                return cls(path, tuple(dict.fromkeys(found)))

    def array(self, name: str = "") -> StoredArray:
        """An array by name, or the only one; its header is checked, nothing else is read."""
        with self.opened_at(name) as (stream, size):
            shape, by_columns, dtype = read_header(stream, self.path)
            promised, left = math.prod(shape) * dtype.itemsize, size - stream.tell()
            start = stream.tell()
        if promised > left or (promised < left and self.names is not None):
            what = f"'{name}'" if name else "the array"
            raise DataError(
                f"{self.path}: {what} should have {promised:,} bytes by its header, it has {left:,}"
            )
        if by_columns and len(shape) > 1:
            return self.stored_by_columns(name, shape, dtype, start)
        return StoredArray(shape, dtype, lambda: self.row_blocks(name, shape, dtype, start))

    def row_blocks(
        self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], start: int
    ) -> Iterator[Array]:
        """The rows of an array stored row by row."""
        step, row = rows_per_block(shape, dtype), math.prod(shape[1:])
        with self.opened_at(name) as (stream, _):
            read_exactly(stream, start)
            for first in range(0, shape[0], step):
                count = min(step, shape[0] - first)
                raw = read_exactly(stream, count * row * dtype.itemsize)
                yield np.frombuffer(raw, dtype).reshape(count, *shape[1:])

    def stored_by_columns(
        self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], start: int
    ) -> StoredArray:
        """An array in Fortran order: mapped into memory, or unpacked at once if it is small."""
        size = math.prod(shape) * dtype.itemsize
        if not size:
            return StoredArray.of(np.zeros(shape, dtype))
        if self.names is None:
            with naming_the_file(self.path):
                return StoredArray.of(np.memmap(self.path, dtype, "r", start, shape, "F"))
        if size > COLUMN_ORDER:
            raise DataError(
                f"{self.path}: '{name}' is stored column by column: save it with "
                "numpy.ascontiguousarray, so that it can be read row by row"
            )
        with self.opened_at(name) as (stream, _):
            raw = read_exactly(stream, start + size)[start:]
        return StoredArray.of(np.frombuffer(raw, dtype).reshape(shape, order="F"))

    @contextmanager
    def opened_at(self, name: str) -> Iterator[tuple[IO[bytes], int]]:
        """The stream of an array, and how many bytes it should have."""
        with naming_the_file(self.path), self.path.open("rb") as stream:
            if self.names is None:
                yield stream, self.path.stat().st_size
                return
            with zipfile.ZipFile(stream) as archive:
                member = archive.getinfo(f"{name}.npy")
                with archive.open(member) as inside:
                    yield inside, member.file_size


def read_header(stream: IO[bytes], path: Path) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether it is stored column by column, and dtype."""
    version = np.lib.format.read_magic(stream)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise DataError(f"{path} is not a .npz or .npy file of plain numbers")
    shape, by_columns, dtype = readers[version](stream)
    if dtype.hasobject or dtype.names:
        raise DataError(f"{path} is not a .npz or .npy file of plain numbers")
    if any(length < 0 for length in shape):
        raise DataError(f"{path}: the header of an array has the shape {shape}")
    return tuple(map(int, shape)), by_columns, dtype


def rows_per_block(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Rows that are read at a time."""
    return max(BLOCK // max(math.prod(shape[1:]) * dtype.itemsize, 1), 1)


def read_exactly(stream: IO[bytes], size: int) -> bytes:
    """So many bytes; EOFError if there are fewer."""
    raw = stream.read(size)
    if len(raw) < size:
        raise EOFError("it ends too early")
    return raw


@contextmanager
def naming_the_file(path: Path) -> Iterator[None]:
    """Turn what goes wrong while a data file is read into an error that names it."""
    try:
        yield
    except FILE_ERRORS as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path} cannot be read as .npz or .npy ({first})") from None
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
