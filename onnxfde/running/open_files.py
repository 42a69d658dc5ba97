"""Opens what the user gives: a model, from a file or from memory, and data for it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onnxfde.errors import DataError, ModelError
from onnxfde.graph import files
from onnxfde.graph.external_data import locate
from onnxfde.graph.input_specs import InputSpec, input_specs
from onnxfde.graph.model import Graph
from onnxfde.graph.onnx_calls import check, refuse_bad_text
from onnxfde.graph.protos import ModelProto
from onnxfde.graph.saving import Original
from onnxfde.graph.size import stored_bytes
from onnxfde.graph.staging import clear_dead_runs
from onnxfde.graph.tensors import outside_tensors
from onnxfde.numbers import Array, Data
from onnxfde.options import Range
from onnxfde.running.input_source import InputSource
from onnxfde.running.random_inputs import check_range
from onnxfde.running.samples import Samples, load_samples, make_samples

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
    if not os.path.lexists(path):
        clear_dead_runs(path.parent)
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


def open_data(graph: Graph, data: Data | None, limits: Range) -> tuple[InputSource, str | None]:
    """Where inputs come from, and a hash of the data if there is any."""
    limits = check_range(limits)
    if data is None:
        return InputSource(limits), None
    specs = input_specs(graph)
    if isinstance(data, str | Path):
        return InputSource(limits, load_samples(Path(data), specs)), files.sha256(Path(data))
    arrays, digest = arrays_by_name(data, specs), hashlib.sha256()
    for name in sorted(arrays):
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return InputSource(limits, make_samples(arrays, specs, "the data")), digest.hexdigest()


def samples_of(data: Data, specs: tuple[InputSpec, ...]) -> Samples:
    """The user's data for the inputs of one model."""
    if isinstance(data, str | Path):
        return load_samples(Path(data), specs)
    return make_samples(arrays_by_name(data, specs), specs, "the data")


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
        raise DataError(f"the data cannot be made an array ({error})") from None
