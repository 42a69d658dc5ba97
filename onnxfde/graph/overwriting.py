"""No output may be a file that an input is read from, whatever its name; only OUT may be IN.

OUT replaces a model or nothing: another file that is there already stays.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from google.protobuf.message import DecodeError

from onnxfde.errors import ModelError, UsageError
from onnxfde.graph.external_data import external_entry, external_file
from onnxfde.graph.files import (
    ORT_MARK,
    FileState,
    check_target,
    is_ort,
    opened_regular,
    read_model,
)
from onnxfde.graph.large_files import fields
from onnxfde.graph.protos import ModelProto, TensorProto
from onnxfde.graph.tensors import outside_tensors
from onnxfde.numbers import IMAGE_SUFFIXES

OTHER_FORMATS = frozenset(
    (".engine", ".h5", ".keras", ".mlmodel", ".pt", ".pth", ".tflite", ".trt")
)
"""How files of other frameworks are called."""
ARRAYS = frozenset((".npz", ".npy", ".csv", ".tsv"))
"""Suffixes of files that hold data, never a model."""


@dataclass(frozen=True)
class InputFiles:
    """The files that a command is given to read."""

    models: tuple[Path, ...] = ()
    data: Path | None = None


def files_read(given: InputFiles) -> Iterator[tuple[Path, str]]:
    """Every file that is read, and what it is: models, their external data, and data."""
    if given.data is not None and os.path.isdir(given.data):
        kinds = IMAGE_SUFFIXES | ARRAYS
        inside = (p for p in given.data.rglob("*") if p.suffix.lower() in kinds)
        yield from ((file, "a file of the data") for file in inside)
    elif given.data is not None:
        yield given.data, "the data file"
    for model in given.models:
        yield model, f"the model {model}"
        for file in data_files(model):
            yield file, f"a file with weights of {model}"


def data_files(model: Path) -> list[Path]:
    """The files with external data that a model names, as far as they exist."""
    found: dict[Path, None] = {}
    with suppress(OSError):
        for tensor in external_references(model, FileState.of(os.stat(model))):
            with suppress(ModelError):
                found[external_file(tensor, model.parent)[0]] = None
    return list(found)


@lru_cache(maxsize=4)
def external_references(model: Path, _state: FileState) -> list[TensorProto]:
    """A tensor without values for each place that a model names; one state is read only once."""
    try:
        tensors = () if is_ort(model) else outside_tensors(read_model(model))
        places = {external_entry(tensor, "location"): tensor for tensor in tensors}
    except ModelError:
        return []
    return [TensorProto(name=t.name, external_data=t.external_data) for t in places.values()]


def same_file(first: Path, second: Path) -> bool:
    """Whether two names lead to the same file, through links too."""
    try:
        return os.path.samefile(first, second)
    except OSError:
        return False


def refuse_overwriting(
    outputs: Sequence[Path], given: InputFiles, may_replace: Path | None = None
) -> None:
    """Raise if an output is a file that is read.

    `may_replace` is OUT, which may be the first of the models. Nothing is opened unless one of the
    outputs exists.
    """
    existing = [output for output in outputs if output.exists()]
    if not existing:
        return
    for file, role in files_read(given):
        for output in existing:
            in_place = output == may_replace and file in given.models[:1]
            if same_file(output, file) and not in_place:
                raise UsageError(f"{output} is {role}; choose another file to write to")


def check_reports(reports: Iterable[Path], targets: Iterable[Path]) -> None:
    """Refuse reports that cannot be written, or that are files which hold the result."""
    taken = {os.path.realpath(target) for target in targets}
    for report in map(os.path.realpath, reports):
        if report in taken:
            raise UsageError(f"{report} is another file of this run; choose another file")
        check_target(Path(report))


def refuse_what_is_no_model(out: Path) -> None:
    """Raise if OUT is named like data, or exists and is no model: then an option was forgotten."""
    if out.suffix.lower() in ARRAYS:
        raise UsageError(f"{out} is named like a data file; OUT is a model, data goes to --data")
    if out.suffix.lower() in OTHER_FORMATS:
        raise UsageError(f"{out} is named like a model of another kind: call OUT *.onnx or *.ort")
    if out.exists() and not is_model_or_empty(out):
        raise UsageError(f"{out} exists and is no model; choose another name, or delete it first")


def is_model_or_empty(file: Path) -> bool:
    """Whether a file is empty or looks like a model, by its outermost fields alone."""
    with opened_regular(file) as (stream, state):
        if not state.size:
            return True
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as raw:
            return raw[4:8] == ORT_MARK or is_model_message(raw, state.size)


def is_model_message(raw: mmap.mmap, size: int) -> bool:
    """Whether bytes are the fields of a message, with a version and a graph among them."""
    wanted = {ModelProto.IR_VERSION_FIELD_NUMBER, ModelProto.GRAPH_FIELD_NUMBER}
    try:
        return wanted <= {field.number for field in fields(raw, 0, size)}
    except DecodeError:
        return False
