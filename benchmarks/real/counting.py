"""How many multiplications a file does for one sample: the shapes are those of a run.

Subgraphs are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions

from onnxfde.graph.cost import UNCOUNTED, product_cost, product_nodes
from onnxfde.numbers import Array


def multiplications(path: Path, feed: Mapping[str, Array]) -> int | None:
    """Multiply-adds of one run on these inputs; None if an operator is not counted."""
    model = onnx.load(path)
    if {node.op_type for node in model.graph.node} & UNCOUNTED:
        return None
    products = list(product_nodes(model))
    shapes = shapes_of(model, feed, {name for n in products for name in (*n.input, *n.output)})
    return sum(product_cost(node, shapes) or 0 for node in products)


def shapes_of(
    model: onnx.ModelProto, feed: Mapping[str, Array], names: set[str]
) -> dict[str, tuple[int, ...]]:
    """The shapes of some values of a model in one run."""
    known = {t.name: tuple(t.dims) for t in model.graph.initializer}
    known |= {name: x.shape for name, x in feed.items()}
    named = {value.name for value in model.graph.output}
    every = {name for node in model.graph.node for name in node.output}
    more = sorted((names & every) - named - {""})
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in more)
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    outputs = [value.name for value in session.get_outputs()]
    values = session.run(outputs, dict(feed))
    return known | {name: np.shape(y) for name, y in zip(outputs, values, strict=True)}
