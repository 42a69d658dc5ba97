"""Which neurons should stay when outgoing weights are refitted: by merging, adding or dropping?

`python -m benchmarks.engines` (extra `paper`, and the shared folder) compares the error of a layer
with `count` neurons by five ways to choose them, and the time that the choice takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx

from benchmarks.common import table
from benchmarks.common.cryptonets_square import INPUT, cryptonets_known, cryptonets_path
from benchmarks.common.layers import layers_of, only_layer
from benchmarks.common.processes import load_note
from benchmarks.common.random_network import random_network
from benchmarks.common.square_networks import trained
from onnxfde.neurons import greedy_steps, tree_choice
from onnxfde.neurons.candidates import CandidateNeurons
from onnxfde.neurons.elimination import eliminate
from onnxfde.neurons.kernels import Metric, norm
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.merge_order import MergeTree, canonical, merge_tree
from onnxfde.neurons.selection import Selection, select
from onnxfde.neurons.tree_choice import TreeChoice, nodes_of_cut
from onnxfde.numbers import FloatArray, Indices

SHARES = (0.03, 0.1, 0.25, 0.5, 0.75, 0.9)
"""Neurons that stay, as shares of all; chosen."""
DATA_ROWS = 1000
"""Training rows that the "data" metrics are measured on; chosen."""
NOISE = 1e-4
"""How far planted near-duplicates lie from their origin; chosen."""
TIMED = ("512-4096-512", "1024-8192-1024")
TIMED_SHARES = (0.1, 0.25, 0.5, 0.9)
LARGEST_TIMED_SHARE = 0.25
"""What is timed of the larger layer."""
NOTE = """"cut": blocks of the merge tree, the relative error in the metric. The other columns are
ratios to it (less than 1 is better), for the same count. "added": one neuron after the other,
among the layer's own, or among all nodes of the tree. "dropped": one by one, from all neurons, or
from the cut at twice the count. "cut + added, dropped": from the cut and the nodes added, together.
"chosen" is what onnxfde takes (`neurons/tree_choice`), and "as if large" what it takes in layers of
more than 1,024 neurons. "blocks": "added, all nodes" in blocks of steps, which onnxfde takes only
among more than 1,024 candidates; the worst ratio to single steps over all counts up to half."""
HEADER = (
    "layer | count | cut | added, own | added, all nodes | dropped, all | dropped, cut at 2 × count"
    " | cut + added, dropped | chosen | as if large | blocks"
)
TIME_HEADER = "layer | count | merge tree | choice | error, chosen / cut"


@dataclass(frozen=True, eq=False)
class Case:
    """A layer in a metric, with what all engines share."""

    name: str
    rows: FloatArray
    outgoing: FloatArray

    @classmethod
    def of(cls, name: str, layer: Layer, metric: Metric) -> Case:
        """Whiten a layer."""
        live = canonical(layer.without_constants())[0]
        return cls(name, metric.whiten(live.incoming), live.outgoing)

    @cached_property
    def total(self) -> float:
        """The norm of the layer."""
        return norm(self.rows, self.outgoing)

    @cached_property
    def tree(self) -> MergeTree:
        """Its merge tree."""
        return merge_tree(self.rows, self.outgoing)

    @cached_property
    def nodes(self) -> CandidateNeurons:
        """All nodes of the tree."""
        return CandidateNeurons.of(self.tree.nodes, self.rows, self.outgoing, self.total)

    @cached_property
    def own(self) -> CandidateNeurons:
        """The layer's neurons."""
        return CandidateNeurons.of(self.rows, self.rows, self.outgoing, self.total)

    @cached_property
    def added(self) -> Selection:
        """Nodes of the tree, one after the other."""
        return select(self.nodes, len(self.rows))

    @cached_property
    def added_own(self) -> Selection:
        """Neurons of the layer, one after the other."""
        return select(self.own, len(self.rows))

    @cached_property
    def dropped_own(self) -> Selection:
        """Neurons of the layer, dropped one by one."""
        return eliminate(self.own, 1)

    @cached_property
    def blocks(self) -> float:
        """The worst ratio of blocks of steps to single steps."""
        few, greedy_steps.FEW_CANDIDATES = greedy_steps.FEW_CANDIDATES, 0
        together = select(self.nodes, len(self.rows) // 2).errors
        greedy_steps.FEW_CANDIDATES = few
        seen = min(len(together), len(self.added.errors))
        fair = self.added.errors[:seen] > 1e-6 * self.total
        return float(np.max(together[:seen][fair] / self.added.errors[:seen][fair]))

    def cut(self, count: int) -> Indices:
        """The nodes of the cut at a count."""
        return nodes_of_cut(self.tree, min(count, len(self.rows)))


def cases() -> Iterator[Case]:
    """Trained, real, random and planted layers."""
    for name in ("gly", "digits", "mnist"):
        net = trained(name)
        layer, rows = only_layer(onnx.load(net.path)), net.rows
        yield Case.of(f"{name}, range", layer, Metric.box(layer.inputs, *rows.limits))
        known = rows.x_train[:DATA_ROWS].astype(np.float64)
        yield Case.of(f"{name}, data", layer, Metric.measured(known))
    yield cryptonets()
    for shape in ("64-256-10", "784-256-10", "512-1024-512"):
        layer = only_layer(random_network(*map(int, shape.split("-"))))
        yield Case.of(f"random {shape}", layer, Metric.box(layer.inputs, -1.0, 1.0))
    yield Case.of("planted 64-1024-64", planted("64-1024-64"), Metric.box(64, -1.0, 1.0))


def cryptonets() -> Case:
    """The Gemm layer of `cryptonets_square.onnx`, with the inputs that it has on images."""
    from onnxruntime import InferenceSession

    model = onnx.load(cryptonets_path())
    (match,) = layers_of(model)
    model.graph.output.append(onnx.ValueInfoProto(name=match.source))
    session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    images = cryptonets_known(DATA_ROWS)[INPUT]
    seen = [session.run([match.source], {INPUT: image[None]})[0].ravel() for image in images]
    return Case.of("cryptonets, data", match.layer, Metric.measured(np.array(seen, np.float64)))


def planted(shape: str) -> Layer:
    """Random weights; a tenth of the neurons are near-duplicates of others."""
    inputs, neurons, outputs = map(int, shape.split("-"))
    rng = np.random.default_rng(0)
    first = neurons - neurons // 10
    source = np.concatenate([np.arange(first), rng.integers(0, first, neurons - first)])
    incoming = rng.normal(size=(first, inputs + 1))[source]
    incoming *= 1 + NOISE * rng.normal(size=incoming.shape)
    return Layer(incoming, rng.normal(size=(outputs, neurons)), np.zeros(outputs))


def prefix_error(found: Selection, count: int) -> float:
    """The error of the first `count`, or of all if there are fewer."""
    return float(found.errors[min(count, len(found.order))])


def large_choice(case: Case, count: int) -> float:
    """The error of what is chosen in a large layer."""
    few, tree_choice.FEW_TO_CHOOSE_FROM = tree_choice.FEW_TO_CHOOSE_FROM, 0
    error = TreeChoice(case.tree, case.rows, case.outgoing, case.total).best(count)[1]
    tree_choice.FEW_TO_CHOOSE_FROM = few
    return error


def error_rows(case: Case) -> Iterator[tuple[object, ...]]:
    """One row per count."""
    choice = TreeChoice(case.tree, case.rows, case.outgoing, case.total)
    for count in sorted({max(2, round(share * len(case.rows))) for share in SHARES}):
        cut = case.nodes.only(case.cut(count)).fit_in_order()[1][-1]
        twice = case.nodes.only(case.cut(2 * count))
        both = case.nodes.only(np.union1d(case.cut(count), case.added.order[:count]))
        errors = (
            prefix_error(case.added_own, count),
            prefix_error(case.added, count),
            prefix_error(case.dropped_own, count),
            prefix_error(eliminate(twice, count), count),
            prefix_error(eliminate(both, count), count),
            choice.best(count)[1],
            large_choice(case, count),
        )
        if cut <= 1e-6 * case.total:
            yield case.name, count, "0", *(f"{e / case.total:.0e}" for e in errors), ""
            continue
        ratios = (f"{error / cut:.3f}" for error in errors)
        yield case.name, count, f"{cut / case.total:.4f}", *ratios, f"{case.blocks:.3f}"


def cpu_seconds(work: Callable[[], object]) -> float:
    """The CPU time of one run."""
    start = time.process_time()
    work()
    return time.process_time() - start


def time_rows(shape: str) -> Iterator[tuple[object, ...]]:
    """One row per count, in products W Wᵀ of the incoming weights."""
    layer = planted(shape)
    case = Case.of(shape, layer, Metric.box(layer.inputs, -1.0, 1.0))
    unit = min(cpu_seconds(lambda: layer.incoming @ layer.incoming.T) for _ in range(3))
    tree = cpu_seconds(lambda: case.tree) / unit
    choice = TreeChoice(case.tree, case.rows, case.outgoing, case.total)
    for share in TIMED_SHARES if shape == TIMED[0] else (LARGEST_TIMED_SHARE,):
        count = int(share * len(case.rows))
        cut = case.tree.nodes[case.cut(count)]
        compared = CandidateNeurons.of(cut, case.rows, case.outgoing, case.total)
        cut_error = compared.fit_in_order()[1][-1]
        start = time.process_time()
        error = choice.best(count)[1]
        spent = (time.process_time() - start) / unit
        yield shape, count, f"{tree:.1f}", f"{spent:.1f}", f"{error / cut_error:.3f}"


def main() -> None:
    """One section for errors, one for times."""
    note = f"{NOTE} Times are CPU times, in products W Wᵀ. {load_note()}"
    sections = [
        table.Section("Errors", HEADER, [row for case in cases() for row in error_rows(case)]),
        table.Section("Times", TIME_HEADER, [row for shape in TIMED for row in time_rows(shape)]),
    ]
    table.write_sections(__file__, "Merging, adding and dropping neurons", sections, note)


if __name__ == "__main__":
    main()
