"""Writing a model: changed, or copied byte for byte with the data files it names.

External weights stay external. They go to `<OUT>.data`; if OUT is IN, to a file named after its
content, so that IN never meets data of another version.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from onnxfde.errors import ModelError, OutputError
from onnxfde.graph.external_data import External, is_in_model_file, locate, parts_read, set_external
from onnxfde.graph.files import CHUNK, FileState, pieces_to_write, same_content, sha256
from onnxfde.graph.large_files import Piece
from onnxfde.graph.model import Graph
from onnxfde.graph.overwriting import (
    InputFiles,
    data_files,
    refuse_foreign,
    refuse_overwriting,
    refuse_what_is_no_model,
    same_file,
)
from onnxfde.graph.protos import ModelProto, TensorProto
from onnxfde.graph.staging import Stage, staged
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
HASH_DIGITS = 16
"""Digits of the hash in the name of a data file: 64 bits, so that no two versions share a name."""


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
def saving(path: Path, original: Original, data: Path | None) -> Iterator[Stage]:
    """A stage for a model, from which no file is replaced that the result was made from."""
    given = InputFiles((original.path,) if original.path else (), data)
    refuse_overwriting([path], given, may_replace=path)
    refuse_what_is_no_model(path)
    with staged(path) as stage:

        def check(targets: list[Path]) -> None:
            refuse_overwriting(targets, given, may_replace=path)
            for target in targets:
                if target != path:
                    refuse_foreign(target, path)

        stage.check = check
        stage.unneeded = partial(orphaned, stage)
        yield stage


def orphaned(stage: Stage) -> tuple[str, ...]:
    """The data file `<OUT>.data` of an old OUT, if the new one does not bring another."""
    data = Path(f"{stage.path}.data")
    if data in (target for _, target in stage.files) or data not in data_files(stage.path):
        return ()
    return (data.name,)


def stage_model(stage: Stage, model: ModelProto, original: Original) -> str:
    """Write a changed model to a stage; returns its hash."""
    if any(outside_tensors(original.graph.model)):
        model = copy_of(model)
        if original.path is not None and same_file(stage.path, original.path):
            stage_new_data(stage, model, original)
        elif any(outside(model, original.graph.model)):
            data = Path(f"{stage.path}.data")
            stage.check([data])
            with stage.open(data) as stream:
                move_all_out(model, original, stream, data.name)
        original.require_unchanged()
    pieces = pieces_to_write(model, original.graph.folder)
    with stage.open(stage.path) as stream:
        digest = write_pieces(pieces, stream)
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


def stage_new_data(stage: Stage, model: ModelProto, original: Original) -> None:
    """Write the weights of a model that replaces its original to a file named after its content."""
    temporary = stage.temporary()
    with temporary.open("wb") as stream:
        moved = move_all_out(model, original, stream, "")
    for old in data_files(stage.path)[:1]:
        shutil.copymode(old, temporary)
    name = f"{stage.path.name}.{sha256(temporary)[:HASH_DIGITS]}.data"
    for tensor in moved:
        location = next(entry for entry in tensor.external_data if entry.key == "location")
        location.value = name_in_model(name)
    data = stage.path.with_name(name)
    stage.add(temporary, data)
    folder = stage.path.parent
    stage.unneeded = lambda: tuple(
        os.path.relpath(file, folder) for file in data_files(stage.path) if file != data
    )


def move_all_out(
    model: ModelProto, original: Original, stream: IO[bytes], name: str
) -> list[TensorProto]:
    """Write all tensors that belong in a data file to it; returns them."""
    moved = list(outside(model, original.graph.model))
    for tensor in moved:
        move_out(tensor, original.graph.folder or Path(), stream, name_in_model(name))
    return moved


def outside_bytes(model: ModelProto, original: ModelProto) -> int:
    """About how many bytes it takes to name and align the weights that leave a changed model."""
    if not any(outside_tensors(original)):
        return 0
    moved = [len(t.raw_data) for t in outside(model, original) if t.data_location != EXTERNAL]
    return sum(ENTRY_BYTES + -size % ALIGNMENT for size in moved)


def name_in_model(name: str) -> str:
    """The name of a data file, which a model stores in UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = name.encode(errors="backslashreplace").decode()
        raise OutputError(
            f"{shown}: a model with external weights cannot name a file that is not UTF-8; "
            "choose another name for OUT"
        ) from None
    return name


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


def move_out(tensor: TensorProto, folder: Path, stream: IO[bytes], name: str) -> None:
    """Append one tensor's bytes to the new data file and point the tensor there."""
    stream.write(b"\0" * (-stream.tell() % ALIGNMENT))
    offset = stream.tell()
    if tensor.data_location == EXTERNAL:
        place = locate(tensor, folder)
        copy_bytes(place.file, stream, place.offset, place.length)
    else:
        stream.write(tensor.raw_data)
    set_external(tensor, name, offset, stream.tell() - offset)


def stage_copy(stage: Stage, original: Original) -> None:
    """Copy a model file byte for byte to a stage, with the data files it names."""
    source, path = original.path, stage.path
    assert source is not None
    same_folder = same_file(source.parent, path.parent)
    if same_folder and same_file(path, source):
        return
    for file in data_files(source):
        target = path.parent / file.relative_to(source.parent)
        if same_file(target, file) or same_content(target, file):
            continue
        stage.check([target])
        with stage.open(target) as stream:
            copy_bytes(file, stream)
    with stage.open(path) as stream:
        copy_bytes(source, stream)
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
