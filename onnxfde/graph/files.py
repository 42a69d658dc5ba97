"""Reading files: a model from a regular file, its hash, and whether a file can be written.

A large file is read without its weights (`large_files`).
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from google.protobuf.message import DecodeError, EncodeError

from onnxfde.errors import ModelError, OutputError
from onnxfde.graph.large_files import LARGE_FILE, Piece, light_bytes, total_bytes, whole_pieces
from onnxfde.graph.onnx_calls import refuse_bad_text
from onnxfde.graph.protos import ModelProto
from onnxfde.graph.tensors import outside_tensors

CHUNK = 1 << 20
"""Bytes read at a time."""
ORT = ".ort"
"""The suffix of a file in onnxruntime's own format."""
ORT_MARK = b"ORTM"
"""Bytes 4 to 8 of a file in onnxruntime's own format."""
READ_WITHOUT_WAITING = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""How a file is opened that may turn out to be a pipe nobody writes to."""
LARGEST_PROTOBUF = 2**31 - 1
"""Bytes that a protobuf message, and so an .onnx file, can have at most."""
USE_EXTERNAL_DATA = (
    "an .onnx file cannot hold more than 2 GiB: store the weights as external data "
    "(onnx.save_model with save_as_external_data=True)"
)


@dataclass(frozen=True)
class FileState:
    """What changes when a file is replaced or written to."""

    device: int
    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, found: os.stat_result) -> FileState:
        """The state that `os.stat` tells."""
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


@dataclass(frozen=True, eq=False)
class ModelFile:
    """A model file as it was when it was read."""

    model: ModelProto
    sha256: str
    state: FileState
    folder: Path
    """Where its external weights are looked up."""


def sha256(path: Path) -> str:
    """The hash of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def same_content(first: Path, second: Path) -> bool:
    """Whether two files have the same bytes."""
    if not first.is_file() or first.stat().st_size != second.stat().st_size:
        return False
    with first.open("rb") as one, second.open("rb") as other:
        while part := one.read(CHUNK):
            if part != other.read(CHUNK):
                return False
    return True


def is_ort(path: str | Path) -> bool:
    """Whether a file name has the suffix of onnxruntime's own format."""
    return Path(path).suffix.lower() == ORT


def read_model(path: Path) -> ModelProto:
    """Parse a file; external weights stay where they are."""
    return read_model_file(path).model


def read_model_file(path: Path, large: int = LARGE_FILE) -> ModelFile:
    """Parse a file and hash it; external weights, and those of a `large` file, stay where they are.

    A link to a large file is followed, unless other files beside the link hold weights.
    """
    with opened_regular(path) as (stream, state):
        real = Path(os.path.realpath(path)) if path.is_symlink() else path
        if state.size >= large and is_text(real.name):
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as raw:
                model = parsed(path, raw, real.name)
            if real == path or not any(outside_tensors(model)):
                return ModelFile(model, digest, state, real.parent)
        stream.seek(0)
        whole = stream.read()
    return ModelFile(parsed(path, whole), hashlib.sha256(whole).hexdigest(), state, path.parent)


def is_text(name: str) -> bool:
    """Whether a file name can be stored in a model."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def parsed(path: Path, raw: bytes | mmap.mmap, name: str | None = None) -> ModelProto:
    """The model in the bytes of a file; with the name of the file, large tensors stay there."""
    if not raw:
        raise ModelError(f"{path} is empty")
    if raw[4:8] == ORT_MARK:
        raise ModelError(f"{path} is in onnxruntime's own format; give the .onnx it was made from")
    try:
        light = bytes(raw) if name is None else light_bytes(raw, len(raw), name)
        model = ModelProto.FromString(light)
    except DecodeError:
        raise ModelError(f"{path} is truncated, or not an ONNX file") from None
    if not model.HasField("graph") or not model.ir_version:
        raise ModelError(f"{path} is not an ONNX file (it holds no graph)")
    refuse_bad_text(model, str(path))
    return model


def read_ort(path: Path) -> bytes:
    """The bytes of a file in onnxruntime's own format."""
    raw = read_regular(path)
    if raw[4:8] != ORT_MARK:
        raise ModelError(
            f"{path} is not in onnxruntime's own format, although its name ends in .ort"
        )
    return raw


def read_regular(path: Path) -> bytes:
    """The bytes of a model file."""
    with opened_regular(path) as (stream, _):
        return stream.read()


@contextmanager
def opened_regular(path: Path) -> Iterator[tuple[BufferedReader, FileState]]:
    """A model file; pipes and devices, which can be read only once, are refused."""
    try:
        handle = os.open(path, READ_WITHOUT_WAITING)
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise ModelError(f"{path} is a directory, not an ONNX file") from None
    except OSError as error:
        if os.path.isdir(path):
            raise ModelError(f"{path} is a directory, not an ONNX file") from None
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        found = os.fstat(handle)
        refuse_special(path, found)
        with os.fdopen(handle, "rb", closefd=False) as stream:
            yield stream, FileState.of(found)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
    finally:
        os.close(handle)


def refuse_special(path: Path, found: os.stat_result) -> None:
    """Refuse what cannot be a model file: folders, pipes, devices, and files that are too large."""
    if stat.S_ISDIR(found.st_mode):
        raise ModelError(f"{path} is a directory, not an ONNX file")
    if not stat.S_ISREG(found.st_mode):
        raise ModelError(f"{path} is no regular file (a pipe or a device); give a file")
    if found.st_size > LARGEST_PROTOBUF:
        raise ModelError(f"{path} has {found.st_size:,} bytes; {USE_EXTERNAL_DATA}")


def serialized(model: ModelProto) -> bytes:
    """A model as the bytes of a file; OutputError if it is too large for one."""
    try:
        return model.SerializeToString()
    except (EncodeError, ValueError):
        raise OutputError(f"the model is too large to be written; {USE_EXTERNAL_DATA}") from None


def pieces_to_write(model: ModelProto, folder: Path | None) -> list[Piece]:
    """A model as the parts of a file; OutputError if it is too large for one."""
    try:
        pieces = whole_pieces(model, folder)
    except (EncodeError, ValueError):
        pieces = []
    if not 0 < total_bytes(pieces) <= LARGEST_PROTOBUF:
        raise OutputError(f"the model is too large to be written; {USE_EXTERNAL_DATA}")
    return pieces


def check_target(path: Path) -> None:
    """Refuse a target that cannot be written, before any work is done."""
    folder = path.parent
    try:
        if not folder.is_dir():
            raise OutputError(f"{folder}: no such folder; create it first")
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise OutputError(f"{path} is not a file; give a file name")
    except FileNotFoundError:
        pass
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror or error})") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"{folder} is not writable")


def make_folder(folder: Path) -> None:
    """Create a folder, unless it exists."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be created ({error.strerror})") from None
