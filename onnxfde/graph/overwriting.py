"""No output may be a file that an input is read from, whatever its name; only OUT may be IN."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from onnxfde.errors import ModelError, OutputError, UsageError
from onnxfde.graph.external_data import external_entry, external_file
from onnxfde.graph.files import FileState, is_ort, read_model
from onnxfde.graph.journal import mentions
from onnxfde.graph.protos import TensorProto
from onnxfde.graph.tensors import outside_tensors


@dataclass(frozen=True)
class InputFiles:
    """The files that a command is given to read."""

    models: tuple[Path, ...] = ()
    data: Path | None = None


def files_read(given: InputFiles) -> Iterator[tuple[Path, str]]:
    """Every file that is read, and what it is: models, their external data, and data."""
    if given.data is not None:
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


def refuse_foreign(data: Path, model: Path) -> None:
    """Refuse to replace a data file, unless it belongs only to the model that is replaced too."""
    if not os.path.lexists(data):
        return
    if not any(same_file(file, data) for file in data_files(model)):
        raise OutputError(f"{data} exists and does not belong to {model}; move it out of the way")
    others = [file for file in mentions(data, model.parent, every_file=False) if file != model]
    if others:
        raise OutputError(
            f"{data} holds weights of {others[0]}, too; choose another name than {model}"
        )
