"""Opens what the user gives: a model, from a file or from memory, and data for it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onnxfde.data_use import DataUse
from onnxfde.errors import DataError, ModelError, UsageError
from onnxfde.graph import files
from onnxfde.graph.external_data import locate
from onnxfde.graph.input_specs import InputSpec, input_specs
from onnxfde.graph.model import Graph
from onnxfde.graph.onnx_calls import check, refuse_bad_text
from onnxfde.graph.protos import ModelProto
from onnxfde.graph.saving import Original
from onnxfde.graph.size import stored_bytes
from onnxfde.graph.tensors import outside_tensors
from onnxfde.numbers import Array, Data
from onnxfde.options import Range
from onnxfde.running.array_folder import ArrayFolder
from onnxfde.running.image_folder import ImageFolder
from onnxfde.running.input_source import InputSource
from onnxfde.running.preprocessing import parse_named
from onnxfde.running.random_inputs import check_range
from onnxfde.running.samples import NO_USE, Samples, load_samples, make_samples

Model = str | Path | ModelProto
"""A model, from a file or from memory."""


@dataclass(frozen=True, eq=False)
class Source(Original):
    """A model to work on and, if it came from a file, that file."""

    @property
    def bytes(self) -> int:
        """Bytes of the model with its external weights."""
        return stored_bytes(self.graph)


def open_model(model: Model) -> Source:
    """Read and check a model, from a file or from memory."""
    if isinstance(model, ModelProto):
        refuse_bad_text(model, "the model")
        check(model, "the model")
        raw = hashlib.sha256(files.serialized(model))
        return Source(Graph(model), None, raw.hexdigest())
    if not isinstance(model, str | Path):
        raise ModelError(f"the model is a {type(model).__name__}: give a path or a ModelProto")
    path = Path(model)
    found = files.read_model_file(path)
    outside = {locate(tensor, found.folder).file for tensor in outside_tensors(found.model)}
    check(found.model, str(path))
    states = [(path, found.state)]
    states += [(file, files.FileState.of(os.stat(file))) for file in sorted(outside)]
    return Source(Graph(found.model, found.folder), path, found.sha256, tuple(states))


def open_model_or_ort(model: Model) -> Graph | Path:
    """A model, or the path of a file in onnxruntime's own format."""
    if isinstance(model, str | Path) and files.is_ort(model):
        return Path(model)
    return open_model(model).graph


def open_data(
    graph: Graph, data: Data | None, limits: Range, use: DataUse = NO_USE
) -> tuple[InputSource, str | None]:
    """Where inputs come from, and a hash of the data if there is any."""
    limits = check_range(limits)
    refuse_senseless(data, use)
    specs = input_specs(graph) if data is not None else ()
    samples = samples_of(data, use, specs)
    if samples is None or data is None:
        return InputSource(limits), None
    return InputSource(limits, samples), hash_of(data, specs)


def samples_of(data: Data | None, use: DataUse, specs: tuple[InputSpec, ...]) -> Samples | None:
    """The user's data for the inputs of one model, if there is any."""
    if data is None:
        return None
    if isinstance(data, str | Path):
        return load_samples(Path(data), specs, use)
    return make_samples(arrays_by_name(data, specs), specs, "the data", use)


def refuse_senseless(data: Data | None, use: DataUse) -> None:
    """Refuse words that make no sense for any data, or that are about data where there is none."""
    for text in use.preprocess:
        parse_named(text)
    used = {"--preprocess": use.preprocess, "--input": use.inputs, "--labels": use.labels}
    for name, said in used.items():
        if said and data is None:
            raise UsageError(f"{name} says how data becomes inputs: give --data")


def hash_of(data: Data, specs: tuple[InputSpec, ...]) -> str:
    """A hash of the user's data."""
    if isinstance(data, str | Path):
        path = Path(data)
        if not os.path.isdir(path):
            return files.sha256(path)
        return (ArrayFolder.opened(path) or ImageFolder.opened(path, specs[0])).sha256()
    arrays, digest = arrays_by_name(data, specs), hashlib.sha256()
    for name in sorted(arrays):
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def arrays_by_name(
    data: Array | Mapping[str, Array], specs: tuple[InputSpec, ...]
) -> dict[str, Array]:
    """Arrays by the names of the inputs; a single array belongs to the only input."""
    if isinstance(data, Mapping):
        return {str(name): as_array(values) for name, values in data.items()}
    if len(specs) != 1:
        names = ", ".join(spec.name for spec in specs)
        raise DataError(
            f"the data is one array, the model has {len(specs)} inputs: give a mapping from names "
            f"({names}) to arrays"
        )
    return {specs[0].name: as_array(data)}


def as_array(values: object) -> Array:
    """An array of what a user gives as one."""
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        several = isinstance(values, tuple | list) and any(hasattr(v, "shape") for v in values)
        hint = "; several arrays are given by their names: {'x': …, 'y': …}" if several else ""
        raise DataError(f"the data cannot be made an array ({error}){hint}") from None
