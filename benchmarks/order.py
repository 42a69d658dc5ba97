"""Is joining a few percent of the pairs at once as good as joining one pair at a time?

`python -m benchmarks.order` (extra `paper`, and the shared folder for MNIST) compares the neurons
left at equal ε in both orders, on trained networks (with training rows as data, and with a range
alone) and on random layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import onnx

from benchmarks.common import table
from benchmarks.common.layers import only_layer
from benchmarks.common.square_networks import trained
from onnxfde.neurons.block_search import BlockSearch
from onnxfde.neurons.kernels import Metric
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.merge_order import MergeTree, merge_tree
from onnxfde.neurons.problem import Problem
from onnxfde.running.random_inputs import latin_hypercube

STEPS = (0.01, 0.03, 0.1, 0.2, 0.3)
"""The ε to compare both orders at; chosen."""
DATA_ROWS = 5000
"""Training rows that the "data" metrics are measured on; chosen."""
RANDOM = ((16, 200, 8), (64, 300, 20), (128, 500, 10))
"""Shapes d-n-m of the random layers; chosen."""
SAMPLES = 256
"""Inputs on which a search decides what is equal up to rounding; chosen."""


class OneAtATime(BlockSearch):
    """The same search with one join per round."""

    @cached_property
    def tree(self) -> MergeTree:
        """Joins in the order of their cost."""
        return merge_tree(self.problem.rows, self.problem.live.outgoing, share=0.0)


def layers() -> Iterator[tuple[str, Layer, Metric]]:
    """Trained and random layers, each with a metric to merge it in."""
    for name in ("gly", "digits", "mnist"):
        net = trained(name)
        layer = only_layer(onnx.load(net.path))
        rows = net.rows.x_train[:DATA_ROWS].astype(np.float64)
        yield f"{name}, data", layer, Metric.measured(rows)
        yield f"{name}, range", layer, Metric.box(layer.inputs, 0.0, 1.0)
    rng = np.random.default_rng(0)
    for d, n, m in RANDOM:
        layer = Layer(rng.normal(size=(n, d + 1)), rng.normal(size=(m, n)), np.zeros(m))
        yield f"random {d}-{n}-{m}", layer, Metric.box(d, -1.0, 1.0)


def neurons_left(search: BlockSearch) -> list[int]:
    """Neurons at each ε."""
    found = [search.within(eps) for eps in STEPS]
    return [f.layer.neurons if f else search.problem.layer.neurons for f in found]


def main() -> None:
    """One row per layer."""
    rows = []
    for name, layer, metric in layers():
        samples = latin_hypercube(SAMPLES, layer.inputs, (0.0, 1.0))
        problem = Problem(layer, metric, samples, np.dtype(np.float32))
        together, single = (neurons_left(kind(problem)) for kind in (BlockSearch, OneAtATime))
        worst = max(a / b for a, b in zip(together, single, strict=True)) - 1
        rows.append(
            (name, *(f"{a} / {b}" for a, b in zip(together, single, strict=True)), f"{worst:+.1%}")
        )
    header = (
        "layer (together / one at a time) | "
        + " | ".join(f"ε {eps:g}" for eps in STEPS)
        + " | worst"
    )
    table.write(__file__, "Joining many pairs at once, against one at a time", header, rows)


if __name__ == "__main__":
    main()
