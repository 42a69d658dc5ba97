"""Reading a model, and writing it so that nothing is ever half written.

Everything is written to temporary files in the target folder, flushed, and renamed into place, data
before model. After an error or an interruption the previous files are as they were, and no
temporary file is left.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from google.protobuf.message import DecodeError

from onnxfde.errors import ModelError, OutputError
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto, TensorProto
from onnxfde.graph.tensors import copy_of, external_tensors, keyed_tensors, locate, set_external

CHUNK = 1 << 20
"""Bytes copied at a time."""
ALIGNMENT = 64
"""Tensors in a data file start at multiples of this: a cache line. Chosen; not measured."""
SMALL_TENSOR = 1024
"""Bytes from which a new tensor goes to the data file: the default of `onnx.save_model`."""
ORT = ".ort"
"""The suffix of a file in onnxruntime's own format."""
ORT_MARK = b"ORTM"
"""Bytes 4 to 8 of a file in onnxruntime's own format."""


def sha256(path: Path) -> str:
    """The hash of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def is_ort(path: str | Path) -> bool:
    """Whether a file name has the suffix of onnxruntime's own format."""
    return Path(path).suffix.lower() == ORT


def read_model(path: Path) -> ModelProto:
    """Parse a file; external weights stay where they are."""
    if path.is_dir():
        raise ModelError(f"{path} is a directory, not an ONNX file")
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
    if not raw:
        raise ModelError(f"{path} is empty")
    if raw[4:8] == ORT_MARK:
        raise ModelError(f"{path} is in onnxruntime's own format; give the .onnx it was made from")
    try:
        model = ModelProto.FromString(raw)
    except DecodeError:
        raise ModelError(f"{path} is truncated, or not an ONNX file") from None
    if not model.HasField("graph") or not model.ir_version:
        raise ModelError(f"{path} is not an ONNX file (it holds no graph)")
    return model


def check_target(path: Path) -> None:
    """Refuse a target that cannot be written, before any work is done."""
    folder = path.parent
    if not folder.is_dir():
        raise OutputError(f"{folder}: no such folder; create it first")
    if path.exists() and not path.is_file():
        raise OutputError(f"{path} is not a file; give a file name")
    if not os.access(folder, os.W_OK):
        raise OutputError(f"{folder} is not writable")


def make_folder(folder: Path) -> None:
    """Create a folder, unless it exists."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be created ({error.strerror})") from None


def save_model(model: ModelProto, path: Path, original: Graph, source: Path | None) -> None:
    """Write a model; if the original keeps weights outside, they all go to `<path>.data`."""
    path = Path(os.path.realpath(path))
    with staged(path) as stage:
        if any(external_tensors(original.model)):
            model = copy_of(model)
            data = Path(f"{path}.data")
            refuse_foreign(data, path)
            refuse_shared(data, path, original, source)
            with stage.open(data) as stream:
                for tensor in outside(model, original.model):
                    move_out(tensor, original.folder or Path(), stream, data.name)
        with stage.open(path) as stream:
            stream.write(model.SerializeToString())


def outside(model: ModelProto, original: ModelProto) -> Iterator[TensorProto]:
    """Tensors that belong in the data file: those that were external before, and large new ones."""
    known = dict(keyed_tensors(original))
    for key, tensor in keyed_tensors(model):
        old = known.get(key, tensor)
        large_and_new = key not in known and len(tensor.raw_data) >= SMALL_TENSOR
        if TensorProto.EXTERNAL in (tensor.data_location, old.data_location) or large_and_new:
            yield tensor


def move_out(tensor: TensorProto, folder: Path, stream: IO[bytes], name: str) -> None:
    """Append one tensor's bytes to the new data file and point the tensor there."""
    stream.write(b"\0" * (-stream.tell() % ALIGNMENT))
    offset = stream.tell()
    if tensor.data_location == TensorProto.EXTERNAL:
        place = locate(tensor, folder)
        with place.file.open("rb") as source:
            source.seek(place.offset)
            left = place.length
            while left:
                left -= stream.write(source.read(min(CHUNK, left)))
    else:
        stream.write(tensor.raw_data)
    set_external(tensor, name, offset, stream.tell() - offset)


def refuse_foreign(data: Path, model: Path) -> None:
    """Refuse to replace a data file, unless it belongs to the model that is replaced as well."""
    if data.exists() and not reads(model, data):
        raise OutputError(f"{data} exists and does not belong to {model}; move it out of the way")


def reads(model: Path, data: Path) -> bool:
    """Whether a file is a model with weights in this data file."""
    try:
        tensors = list(external_tensors(read_model(model)))
        return any(locate(tensor, model.parent).file.samefile(data) for tensor in tensors)
    except ModelError:
        return False


def refuse_shared(data: Path, target: Path, original: Graph, source: Path | None) -> None:
    """Refuse to replace the weights of the input model, unless it is replaced as well."""
    in_place = source is not None and target.exists() and target.samefile(source)
    if in_place or not data.exists():
        return
    folder = original.folder or Path()
    if any(locate(t, folder).file.samefile(data) for t in external_tensors(original.model)):
        raise OutputError(f"{data} holds the weights of the input; choose another name for OUT")


def copy_unchanged(model: ModelProto, source: Path, path: Path) -> None:
    """Copy a model file byte for byte, with the data files it names."""
    path = Path(os.path.realpath(path))
    if path.exists() and path.samefile(source):
        return
    files = {locate(t, source.parent).file for t in external_tensors(model)}
    with staged(path) as stage:
        for file in sorted(files):
            target = path.parent / file.relative_to(source.parent)
            if target.exists() and (target.samefile(file) or sha256(target) == sha256(file)):
                continue
            refuse_foreign(target, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            stage.copy(file, target)
        stage.copy(source, path)


class Stage:
    """Temporary files that are renamed into place together, in the order they were written."""

    def __init__(self, folder: Path) -> None:
        """Create a temporary folder beside the files that will be replaced."""
        self.folder = Path(tempfile.mkdtemp(prefix=".onnxfde-", dir=folder))
        self.files: list[tuple[Path, Path]] = []

    @contextlib.contextmanager
    def open(self, target: Path) -> Iterator[IO[bytes]]:
        """A stream whose bytes will become `target`."""
        temporary = self.folder / str(len(self.files))
        with temporary.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        self.files.append((temporary, target))

    def copy(self, source: Path, target: Path) -> None:
        """Let the bytes of `source` become `target`."""
        with source.open("rb") as old, self.open(target) as new:
            shutil.copyfileobj(old, new, CHUNK)

    def commit(self) -> None:
        """Rename all files into place, or none."""
        backups = [self._backup(target) for _, target in self.files]
        try:
            for temporary, target in self.files:
                os.replace(temporary, target)
        except BaseException:
            for (temporary, target), backup in zip(self.files, backups, strict=True):
                if temporary.exists():
                    continue
                if backup is not None:
                    os.replace(backup, target)
                else:
                    target.unlink(missing_ok=True)
            raise

    def _backup(self, target: Path) -> Path | None:
        """A second name for the file that is about to be replaced."""
        if not target.exists():
            return None
        backup = self.folder / f"{len(os.listdir(self.folder))}.old"
        try:
            os.link(target, backup)
        except OSError:
            shutil.copy2(target, backup)
        return backup


@contextlib.contextmanager
def staged(path: Path) -> Iterator[Stage]:
    """Write files beside `path` and commit them if nothing goes wrong."""
    check_target(path)
    try:
        stage = Stage(path.parent)
        try:
            yield stage
            stage.commit()
        finally:
            shutil.rmtree(stage.folder, ignore_errors=True)
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror or error})") from None


def copy_file(source: Path, target: Path) -> None:
    """Copy one file."""
    with staged(target) as stage:
        stage.copy(source, target)


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    with staged(path) as stage, stage.open(path) as stream:
        stream.write(text.encode())
