"""What becomes of the data files of a model that was replaced.

One of them is deleted: if it is called as OUT calls its own, OUT.<16 hex digits>.data, is the only
one called so, and no model that could read it names it. All others stay, and are reported.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from google.protobuf.message import DecodeError

from onnxfde.graph.large_files import fields
from onnxfde.graph.overwriting import same_file
from onnxfde.graph.protos import ModelProto

HASH_DIGITS = 16
"""Digits of the hash in the name of a data file: 64 bits, so that no two versions share a name."""
MODEL_FIELDS = {ModelProto.IR_VERSION_FIELD_NUMBER, ModelProto.GRAPH_FIELD_NUMBER}
TEXT_SUFFIXES = frozenset((".onnxtxt", ".pbtxt", ".prototxt", ".textproto", ".txtpb"))
"""How onnx calls models that are text."""
JSON_GRAPHS = (b'"irVersion"', b'"ir_version"')
"""What stands in a model that is JSON."""
MOST_FIELDS = 1000
"""Outermost fields of a file among which a version and a graph make it a model. Chosen: exporters
write them among the first ten; not tuned."""


@dataclass(frozen=True)
class OldWeights:
    """A data file of a replaced model that stays."""

    file: str
    """Relative to OUT."""
    bytes: int
    read_by: str | None
    """What may read it, relative to OUT, if anything in the folder and those above may."""


def data_name(out: str, digest: str) -> str:
    """The name of the data file of a model, by its content.

    >>> data_name("small.onnx", "0123456789abcdef0123")
    'small.onnx.0123456789abcdef.data'
    """
    return f"{out}.{digest[:HASH_DIGITS]}.data"


def settled(out: Path, old: Sequence[Path], new: Sequence[Path], alone: bool) -> list[OldWeights]:
    """Delete what only the replaced OUT can have needed; returns the data files that stay.

    `alone` says that no other run works in the folder.
    """
    left = [file for file in old if not any(same_file(file, each) for each in new)]
    own = [file for file in left if is_own(file, out)]
    found = []
    for file in left:
        reader = next(readers(file), None)
        if alone and own == [file] and reader is None:
            with contextlib.suppress(OSError):
                file.unlink()
        with contextlib.suppress(OSError):
            size, folder = file.stat().st_size, out.parent
            read_by = os.path.relpath(reader, folder) if reader else None
            found.append(OldWeights(os.path.relpath(file, folder), size, read_by))
    return found


def is_own(file: Path, out: Path) -> bool:
    """Whether a file is called like a data file of OUT, beside it, and regular."""
    pattern = rf"{re.escape(out.name)}\.[0-9a-f]{{{HASH_DIGITS}}}\.data"
    beside = file.parent == out.parent and re.fullmatch(pattern, file.name) is not None
    return beside and os.path.isfile(file) and not os.path.islink(file)


def readers(data: Path) -> Iterator[Path]:
    """What may read a data file: models in its folder and those above, and links to it.

    A folder whose names cannot be read may hold a model.
    """
    for folder in data.parents:
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            yield folder
            continue
        for file in (folder / name for name in names if folder / name != data):
            is_link = os.path.islink(file) and same_file(file, data)
            if is_link or may_name(file, os.fsencode(data.name)):
                yield file


def may_name(file: Path, data: bytes) -> bool:
    """Whether a file is a model that names a data file; models store such names as they are.

    A file that is called like a model and cannot be read may be one.
    """
    called_so = file.suffix.lower() in {".onnx", *TEXT_SUFFIXES}
    try:
        found = os.stat(file)
        if not stat.S_ISREG(found.st_mode) or not found.st_size:
            return False
        with (
            file.open("rb") as stream,
            mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as raw,
        ):
            is_model = called_so or any(raw.find(word) >= 0 for word in JSON_GRAPHS)
            is_model = is_model or begins_like_a_model(raw)
            return is_model and raw.find(data) >= 0
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return called_so


def begins_like_a_model(raw: mmap.mmap) -> bool:
    """Whether a version and a graph are among the first fields of a file."""
    seen = set[int]()
    with contextlib.suppress(DecodeError):
        for field in islice(fields(raw, 0, len(raw)), MOST_FIELDS):
            seen.add(field.number)
            if seen >= MODEL_FIELDS:
                return True
    return False
