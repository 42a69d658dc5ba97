"""Running models and single nodes in onnx.reference, the definition of the operators.

A run can be stopped between two nodes: the evaluator logs each node before it runs it, in bodies
too, and ours raises there once a flag is set.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxfde.errors import RunStopped, RuntimeUnavailable, in_one_line
from onnxfde.graph.protos import GraphProto, ModelProto, NodeProto, ValueInfoProto
from onnxfde.graph.tensors import complete_copy
from onnxfde.memory import limited_memory
from onnxfde.numbers import Array

REFERENCE_ERRORS = (
    ArithmeticError,
    AssertionError,
    MemoryError,
    NameError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
)
"""What onnx.reference raises for operators, types and sizes that it does not support."""


def reference_runner(
    model: ModelProto, folder: Path | None, stop: threading.Event | None = None
) -> Callable[[dict[str, Array]], list[Any]]:
    """A function that runs a model in onnx's reference implementation until `stop` is set."""
    from onnx.reference import ReferenceEvaluator

    class StoppableEvaluator(ReferenceEvaluator):
        def _log(self, level: int, pattern: str, *args: Any) -> None:
            if stop is not None and stop.is_set():
                raise RunStopped("running it took too long")

    complete = complete_copy(model, folder)
    with reference_errors():
        evaluator = StoppableEvaluator(complete)

    def run(feeds: dict[str, Array]) -> list[Any]:
        with reference_errors():
            return list(evaluator.run(None, feeds))

    return run


@contextmanager
def reference_errors() -> Iterator[None]:
    """Turn what onnx.reference raises into RuntimeUnavailable, and let it warn of nothing."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except REFERENCE_ERRORS as error:
        raise RuntimeUnavailable(f"onnx.reference: {in_one_line(error)}") from None


def evaluate(node: NodeProto, inputs: Sequence[Array | None], opset: int) -> list[Array]:
    """What onnx's reference implementation of one node makes of arrays; None for no input."""
    from onnx.reference import ReferenceEvaluator

    single = NodeProto()
    single.CopyFrom(node)
    single.input[:] = ["" if a is None else f"input{i}" for i, a in enumerate(inputs)]
    feeds = {f"input{i}": a for i, a in enumerate(inputs) if a is not None}
    graph = GraphProto(name="node", node=[single])
    graph.input.extend(ValueInfoProto(name=name) for name in feeds)
    graph.output.extend(ValueInfoProto(name=name) for name in single.output)
    model = ModelProto(graph=graph, opset_import=[onnx.helper.make_opsetid("", opset)])
    with limited_memory(), reference_errors():
        evaluator = ReferenceEvaluator(model)
        return [np.asarray(a) for a in evaluator.run(None, feeds)]
