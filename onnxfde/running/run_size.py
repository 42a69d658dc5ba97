"""How large a run of a model is: its values, its outputs and its work, estimated from shapes.

Shapes that depend on values, or lie in the bodies of loops, are not known here: what they take is
limited while the model runs (`memory`, `run_clock`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from onnxfde.errors import DataError
from onnxfde.graph.cost import is_counted, product_cost, product_nodes, stored_weights
from onnxfde.graph.inferred_shapes import inferred_dims
from onnxfde.graph.model import Graph
from onnxfde.graph.shapes import Dims
from onnxfde.running.samples import Samples

RUN_VALUES = 2**24
"""Most numbers in the largest value of a run that can be made smaller: 64 MB of float32. Chosen:
half a dozen such values are alive at a time; not tuned."""
LARGEST_VALUE = 2**24
"""Most numbers in the largest value of any run: 64 MB of float32. Chosen; not tuned."""
VALUES_PER_WEIGHT = 32
"""What is added to that for each weight, since a large model needs a large machine anyway. Chosen:
networks for volumes of images hold a few dozen values per weight; not tuned."""
RANDOM_WORK = 4e9
"""Multiply-adds that all runs on random inputs may take: a few seconds. Chosen; not tuned."""
RANDOM_WORK_PER_WEIGHT = 1e5
"""What is added to that for each weight: some thousand samples, and dozens of uses of a weight for
each as in convolutions. Chosen; not tuned."""
COMPARED_VALUES = 2**23
"""Most numbers in the outputs on which models are compared: 64 MB of float64, a few times over.
Chosen; not tuned."""
UNCOUNTED_WORK = 100
"""Multiply-adds assumed for each weight where they cannot be counted: an LSTM uses its weights once
in each step. Chosen; not tuned."""


@dataclass(frozen=True)
class RunSize:
    """The size of one run."""

    name: str = ""
    """The name of the largest value."""
    largest: int = 0
    """How many numbers it has."""
    outputs: int = 0
    """Numbers in all outputs."""
    work: float = 0.0
    """Multiply-adds, and one for each value."""


def run_size(graph: Graph, shapes: Mapping[str, Dims]) -> RunSize:
    """The size of a run on inputs of these shapes."""
    model = graph.model
    known = inferred_dims(model, shapes)
    stored = graph.initializers.keys()
    sizes = {
        name: math.prod(d for d in lengths if isinstance(d, int))
        for name, lengths in known.items()
        if name not in stored and all(isinstance(d, int) for d in lengths)
    }
    costs = [product_cost(node, known) for node in product_nodes(model)]
    work = float(sum(cost or 0 for cost in costs) + sum(sizes.values()))
    if None in costs or not is_counted(model):
        rows = max((d[0] for d in shapes.values() if d and isinstance(d[0], int)), default=1)
        work += UNCOUNTED_WORK * stored_weights(model) * rows
    name = max(sizes, key=lambda n: sizes[n], default="")
    outputs = sum(sizes.get(value.name, 0) for value in model.graph.output)
    return RunSize(name, sizes.get(name, 0), outputs, work)


def sized(samples: Samples, graph: Graph) -> Samples:
    """The samples with as many rows per run as fit; DataError if even the smallest run does not.

    Samples whose work is known were sized before.
    """
    if samples.work:
        return samples
    batch = max(min(samples.batch, samples.rows), 1)
    size = run_size(graph, samples.run_shapes(batch))
    if size.largest > RUN_VALUES and samples.is_dynamic and batch > 1:
        one = run_size(graph, samples.run_shapes(1))
        growth = max((size.largest - one.largest) / (batch - 1), 1.0)
        batch = int(min(max(1 + (RUN_VALUES - one.largest) / growth, 1), batch))
        size = run_size(graph, samples.run_shapes(batch))
        samples = replace(samples, batch=batch)
    if size.largest > LARGEST_VALUE + VALUES_PER_WEIGHT * stored_weights(graph.model):
        raise DataError(f"one run is too large: '{size.name}' would have {size.largest:,} numbers")
    return replace(samples, work=size.work * samples.runs)


def with_little_work(samples: Samples, graph: Graph) -> Samples:
    """As many random samples as a model of this size can be run on in a reasonable time."""
    samples = sized(samples, graph)
    most = RANDOM_WORK + RANDOM_WORK_PER_WEIGHT * stored_weights(graph.model)
    return (
        samples if samples.work <= most else samples.some(int(samples.rows * most / samples.work))
    )


def sized_to_compare(samples: Samples, graph: Graph) -> Samples:
    """Samples as `sized`, and so few that the outputs of all of them fit as well."""
    samples = sized(samples, graph)
    rows = samples.fed // max(samples.runs, 1)
    rows = max(min(samples.batch, samples.rows) if samples.is_dynamic else rows, 1)
    outputs = run_size(graph, samples.run_shapes(rows)).outputs
    fitting = COMPARED_VALUES * rows // max(outputs, 1)
    few = samples.some(max(fitting, 1))
    if few.rows == samples.rows:
        return samples
    text = f"{samples.source} ({few.rows:,} of {samples.rows:,} rows)"
    return replace(few, source=text)
