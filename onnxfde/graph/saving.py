"""Writing a model: changed, or copied byte for byte with the data files it names.

External weights stay external. Those of a changed model go to a file named after its content, so
that no model ever meets data of another version; those of a copy keep the names they have.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from onnxfde.errors import ModelError, OutputError
from onnxfde.graph.external_data import External, is_in_model_file, locate, parts_read, set_external
from onnxfde.graph.files import CHUNK, FileState, pieces_to_write
from onnxfde.graph.large_files import Piece
from onnxfde.graph.model import Graph
from onnxfde.graph.new_files import NewFiles, new_files
from onnxfde.graph.old_weights import data_name
from onnxfde.graph.overwriting import (
    InputFiles,
    data_files,
    refuse_overwriting,
    refuse_what_is_no_model,
    same_file,
)
from onnxfde.graph.protos import ModelProto, TensorProto
from onnxfde.graph.tensors import copy_of, keyed_tensors, outside_tensors

EXTERNAL = TensorProto.EXTERNAL
KERNEL_CHUNK = 1 << 30
"""Bytes that the system is asked to copy at a time; it may copy fewer."""
ALIGNMENT = 64
"""Tensors in a data file start at multiples of this: a cache line. Chosen; not measured."""
SMALL_TENSOR = 1024
"""Bytes from which a new tensor goes to the data file: the default of `onnx.save_model`."""
ENTRY_BYTES = 100
"""What a model says of an external tensor: the file's name, here of 40 letters, where in the file
it is, and how long. Counted."""


@dataclass(frozen=True, eq=False)
class Original:
    """The model that a result was made from and, if it came from a file, that file."""

    graph: Graph
    path: Path | None = None
    sha256: str = ""
    states: tuple[tuple[Path, FileState], ...] = ()
    """The files it was read from, as they were then."""

    def require_unchanged(self) -> None:
        """Raise if a file was written to or replaced since it was opened."""
        for file, state in self.states:
            try:
                same = FileState.of(os.stat(file)) == state
            except OSError:
                same = False
            if not same:
                raise ModelError(f"{file} was changed by another program; run again")


@contextmanager
def saving(path: Path, original: Original, data: Path | None) -> Iterator[NewFiles]:
    """The same for a result; no file is replaced that it was made from."""
    given = InputFiles((original.path,) if original.path else (), data)
    refuse_overwriting([path], given, may_replace=path)
    refuse_what_is_no_model(path)
    with new_files(path) as new:
        yield new


def write_changed(new: NewFiles, model: ModelProto, original: Original) -> str:
    """Write a changed model; returns its hash."""
    if any(outside_tensors(original.graph.model)):
        model = copy_of(model)
        if moved := list(outside(model, original.graph.model)):
            write_data(new, moved, original)
        original.require_unchanged()
    pieces = pieces_to_write(model, original.graph.folder)
    digest = write_pieces(pieces, new.new_model().stream)
    original.require_unchanged()
    return digest


def write_pieces(pieces: Iterable[Piece], stream: IO[bytes]) -> str:
    """Write bytes, and parts of other files; returns the hash of all of them."""
    digest = hashlib.sha256()
    for piece in pieces:
        for part in parts_read(piece) if isinstance(piece, External) else (piece,):
            digest.update(part)
            stream.write(part)
    return digest.hexdigest()


def write_data(new: NewFiles, moved: Sequence[TensorProto], original: Original) -> None:
    """Write tensors to a data file, which is named after its content, and point them there."""
    require_storable(new.path.name)
    data, folder = new.new_data(), original.graph.folder or Path()
    places = [append(tensor, folder, data.stream) for tensor in moved]
    name = data_name(new.path.name, data.sha256())
    new.add(data, new.path.with_name(name))
    for tensor, (offset, length) in zip(moved, places, strict=True):
        set_external(tensor, name, offset, length)


def outside_bytes(model: ModelProto, original: ModelProto) -> int:
    """About how many bytes it takes to name and align the weights that leave a changed model."""
    if not any(outside_tensors(original)):
        return 0
    moved = [len(t.raw_data) for t in outside(model, original) if t.data_location != EXTERNAL]
    return sum(ENTRY_BYTES + -size % ALIGNMENT for size in moved)


def require_storable(name: str) -> None:
    """Raise if a model, which stores names in UTF-8, cannot name a file."""
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = name.encode(errors="backslashreplace").decode()
        raise OutputError(
            f"{shown}: a model with external weights cannot name a file that is not UTF-8; "
            "choose another name for OUT"
        ) from None


def outside(model: ModelProto, original: ModelProto) -> Iterator[TensorProto]:
    """Tensors that belong in the data file: those that were external before, and large new ones."""
    known = dict(keyed_tensors(original))
    for key, tensor in keyed_tensors(model):
        old = known.get(key, tensor)
        if is_in_model_file(tensor) or is_in_model_file(old):
            continue
        large_and_new = key not in known and len(tensor.raw_data) >= SMALL_TENSOR
        if EXTERNAL in (tensor.data_location, old.data_location) or large_and_new:
            yield tensor


def append(tensor: TensorProto, folder: Path, stream: IO[bytes]) -> tuple[int, int]:
    """Append one tensor's bytes to a data file; returns offset and length."""
    stream.write(b"\0" * (-stream.tell() % ALIGNMENT))
    offset = stream.tell()
    if tensor.data_location == EXTERNAL:
        place = locate(tensor, folder)
        copy_bytes(place.file, stream, place.offset, place.length)
    else:
        stream.write(tensor.raw_data)
    return offset, stream.tell() - offset


def write_copy(new: NewFiles, original: Original) -> None:
    """Copy a model file byte for byte, with the data files it names."""
    source, path = original.path, new.path
    assert source is not None
    beside = same_file(path.parent, source.parent)
    if beside and same_file(path, source):
        return
    for file in () if beside else data_files(source):
        data = new.new_data()
        copy_bytes(file, data.stream)
        new.add(data, path.parent / file.relative_to(source.parent))
    copy_bytes(source, new.new_model().stream)
    original.require_unchanged()


def copy_bytes(source: Path, stream: IO[bytes], offset: int = 0, length: int | None = None) -> None:
    """Append a part of a file, or all of it, to another one without holding it in memory."""
    try:
        old = source.open("rb")
    except OSError as error:
        raise ModelError(f"{source}: cannot be read ({error.strerror})") from None
    with old:
        left = os.fstat(old.fileno()).st_size - offset if length is None else length
        done = copied_by_system(old, stream, offset, left)
        old.seek(offset + done)
        while done < left:
            part = old.read(min(CHUNK, left - done))
            if not part:
                raise ModelError(f"{source} became shorter while it was copied; run again")
            done += stream.write(part)


def copied_by_system(old: IO[bytes], new: IO[bytes], offset: int, length: int) -> int:
    """Let the system copy without a detour through this process; returns how many bytes it did."""
    done = 0
    if not hasattr(os, "copy_file_range"):
        return done
    new.flush()
    start = new.tell()
    try:
        while done < length:
            count = min(KERNEL_CHUNK, length - done)
            step = os.copy_file_range(
                old.fileno(), new.fileno(), count, offset + done, start + done
            )
            if not step:
                break
            done += step
    except OSError:  # not for these files: the caller copies them itself
        done = 0
    new.seek(start + done)
    return done
