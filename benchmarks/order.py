"""Is joining a few percent of the pairs at once as good as joining one pair at a time?

`python -m benchmarks.order` (extra `paper`, and the shared folder for MNIST): neurons left at equal
ε in both orders, on trained networks (with training rows as data, and with their range) and on
random layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np

from benchmarks import table
from benchmarks.nets import trained
from onnxfde.graph.files import read_model
from onnxfde.graph.match import find_layers
from onnxfde.graph.model import Graph
from onnxfde.neurons.block_search import Budget
from onnxfde.neurons.kernels import Metric
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.merge_order import MergeTree, merge_tree
from onnxfde.running.samples import latin_hypercube

STEPS = (0.01, 0.03, 0.1, 0.2, 0.3)


class OneAtATime(Budget):
    """The same search with one join a round."""

    @cached_property
    def tree(self) -> MergeTree:
        """Joins in the order of their cost."""
        return merge_tree(self.rows, self.layer.outgoing, share=0.0)


def layers() -> Iterator[tuple[str, Layer, Metric]]:
    """Trained and random layers with the metrics to merge them in."""
    for name in ("gly", "digits", "mnist"):
        net = trained(name)
        (match,), _ = find_layers(Graph(read_model(Path(net.path))))
        layer, rows = match.layer, net.rows.x_train[:5000].astype(np.float64)
        yield f"{name}, data", layer, Metric.measured(rows)
        yield f"{name}, range", layer, Metric.box(layer.inputs, 0.0, 1.0)
    rng = np.random.default_rng(0)
    for d, n, m in ((16, 200, 8), (64, 300, 20), (128, 500, 10)):
        layer = Layer(rng.normal(size=(n, d + 1)), rng.normal(size=(m, n)), np.zeros(m))
        yield f"random {d}-{n}-{m}", layer, Metric.box(d, -1.0, 1.0)


def left(budget: Budget) -> list[int]:
    """Neurons at each step."""
    found = [budget.within(eps) for eps in STEPS]
    return [f.layer.neurons if f else budget.original.neurons for f in found]


def main() -> None:
    """One row a layer."""
    rows = []
    for name, layer, metric in layers():
        samples = latin_hypercube(256, layer.inputs, (0.0, 1.0))
        together = left(Budget(layer, metric, samples, 2.0**-24, np.float32))
        single = left(OneAtATime(layer, metric, samples, 2.0**-24, np.float32))
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
