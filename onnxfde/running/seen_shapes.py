"""Shapes for one sample: those that follow from the model, and where it leaves some open, a run's.

Lengths that depend on values, or are computed in ways that onnx does not follow, are not inferred;
one run on a sample of the data shows them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from onnxfde.errors import RuntimeUnavailable
from onnxfde.graph.cost import lengths_needed, multiply_adds, one_sample, product_nodes
from onnxfde.graph.inferred_shapes import are_lengths, inferred_dims
from onnxfde.graph.model import Graph
from onnxfde.graph.shapes import Dims
from onnxfde.graph.subgraph import part_making
from onnxfde.running.input_source import InputSource
from onnxfde.running.outputs import output_array


def shapes_of_one(source: InputSource, graph: Graph) -> Mapping[str, Dims]:
    """The shapes of inputs for one sample, and of inner values that only a run can tell."""
    given = source.shapes_of_one(graph)
    if source.data is None:
        return given
    open_values = list(values_of_unknown_shape(graph, one_sample(graph, given)))
    if not open_values:
        return given
    try:
        return {**given, **seen_shapes(source, graph, open_values)}
    except RuntimeUnavailable:
        return given


def multiply_adds_of_one(source: InputSource, graph: Graph) -> int | None:
    """Multiply-adds of one sample; None where they cannot be counted."""
    return multiply_adds(graph.model, one_sample(graph, shapes_of_one(source, graph)))


def values_of_unknown_shape(graph: Graph, inputs: Mapping[str, Dims]) -> Iterator[str]:
    """What products read and make, as far as its lengths are needed and do not follow."""
    known = inferred_dims(graph.model, inputs)
    for node in product_nodes(graph.model):
        for name in lengths_needed(node):
            if not are_lengths(known.get(name)) and name in graph.producers:
                yield name


def seen_shapes(source: InputSource, graph: Graph, names: list[str]) -> dict[str, Dims]:
    """The shapes that values have in a run on one sample; RuntimeUnavailable if it fails."""
    from onnxfde.running.runtime import load

    assert source.data is not None
    feeds = next(replace(source.data, batch=1).feeds())
    wanted = list(dict.fromkeys(names))
    part = part_making(graph, wanted, {})
    runner = load(part, graph.folder)
    with source.clock.watching(runner.stop, 0.0):
        values = runner.run({value.name: feeds[value.name] for value in part.graph.input})
    return {name: np.shape(output_array(value)) for name, value in zip(wanted, values, strict=True)}
