"""The models of onnx's backend tests: those in the wheel, and those it generates in memory."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import onnx
from onnx import numpy_helper

from benchmarks.corpus.cases import FOLDER, Case, Source

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
IN_THE_WHEEL = ("light", "simple", "pytorch-converted", "pytorch-operator")
GENERATED = "node"
WHOLE = "complete"
"""A file that says that all generated models were written."""


def in_the_wheel(group: str) -> Source:
    """The models of one folder of the wheel."""
    paths = sorted((DATA / group).rglob("*.onnx"))
    cases = tuple(stored_case(group, path) for path in paths)
    return Source(group, f"onnx/backend/test/data/{group}", cases, onnx.__version__)


def stored_case(group: str, path: Path) -> Case:
    """A model of the backend tests, with its inputs."""
    name = path.parent.name if path.name == "model.onnx" else path.stem
    return Case(group, name, path, tuple(sorted(path.parent.glob("test_data_set_*"))))


def generated() -> Source:
    """Node tests and in-memory models, written to the cache once per version of onnx."""
    folder = FOLDER / f"onnx-{onnx.__version__}"
    if not (folder / WHOLE).exists():
        for case in collected():
            write_case(case, folder / case.name)
        (folder / WHOLE).touch()
    paths = sorted(folder.glob("*/model.onnx"))
    cases = tuple(stored_case(GENERATED, path) for path in paths)
    return Source(GENERATED, "onnx.backend.test.case", cases, onnx.__version__)


def collected() -> Iterable[Any]:
    """The test cases that onnx makes in memory."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they divide by zero on purpose
        from onnx.backend.test.case import model, node

        found = [*node.collect_testcases(None), *model.collect_testcases()]
    return [case for case in found if case.model is not None]


def write_case(case: Any, folder: Path) -> None:
    """The model of a test case, and its inputs in the format of the stored ones."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    for at, (inputs, _) in enumerate(case.data_sets or []):
        data = folder / f"test_data_set_{at}"
        data.mkdir(exist_ok=True)
        for number, (value, info) in enumerate(zip(inputs, case.model.graph.input, strict=False)):
            (data / f"input_{number}.pb").write_bytes(serialized(value, info))


def serialized(value: Any, info: onnx.ValueInfoProto) -> bytes:
    """A test input as a protobuf message of its type."""
    kind = info.type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.from_list(value, info.name).SerializeToString()
    if kind == "optional_type":
        return numpy_helper.from_optional(value, info.name).SerializeToString()
    if isinstance(value, onnx.TensorProto):
        return value.SerializeToString()
    return numpy_helper.from_array(value, info.name).SerializeToString()
