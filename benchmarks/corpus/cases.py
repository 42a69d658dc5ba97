"""A model of the corpus, and where it came from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from benchmarks.common.folders import CACHE

FOLDER = CACHE / "corpus"
"""Downloaded, exported and generated models, and the results so far."""


@dataclass(frozen=True)
class Case:
    """A model file, and stored inputs if it came with some."""

    group: str
    name: str
    path: Path
    stored: tuple[Path, ...] = ()
    """Folders with `input_0.pb`, `input_1.pb`, …, as onnx's backend tests have them."""


@dataclass(frozen=True)
class Source:
    """Where models were looked for, and why there are none, if there are none."""

    group: str
    name: str
    cases: tuple[Case, ...]
    version: str = ""
    skipped: str = ""


def external_files(path: Path) -> set[Path]:
    """The files that hold a model's external tensors; none for what cannot be parsed."""
    try:
        model = onnx.load(path, load_external_data=False)
    except (ValueError, OSError, onnx.checker.ValidationError, RuntimeError):
        return set()
    return {
        path.parent / ExternalDataInfo(tensor).location
        for tensor in tensors(model.graph)
        if uses_external_data(tensor)
    }


def tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """All tensors of a graph and its subgraphs."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield from [attribute.t] if attribute.HasField("t") else []
            yield from attribute.tensors
            for inner in ([attribute.g] if attribute.HasField("g") else []) + [*attribute.graphs]:
                yield from tensors(inner)


def content_hash(path: Path) -> str:
    """A hash of a model and of its external data."""
    found = hashlib.sha256(path.read_bytes())
    for file in sorted(external_files(path)):
        found.update(file.read_bytes() if file.exists() else b"")
    return found.hexdigest()
