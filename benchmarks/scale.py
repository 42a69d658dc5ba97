"""How do partitions and merge orders scale, beside one float64 Gram product of the same matrix?

`python -m benchmarks.scale` (extra `plot`) measures layers d-n-m with incoming rows scaled to
‖u‖₁ = 1 and outgoing columns to max |V| = 1, at ε = 0.05. `planted`: a tenth of the neurons are
near-duplicates of others; `distinct`: none; `cluster`: all are near-duplicates of one. Each row is
measured in a fresh process (peak memory includes the weights). "pairs" counts the distances that
had to be computed; diameter on one cluster needs all of them, and is measured up to 1,024 neurons.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import table
from benchmarks.common.made_layers import make_layer
from benchmarks.common.naive_closure import naive_backward_closure
from benchmarks.common.processes import peak_megabytes, run_apart
from onnxfde.lumping.closure import Effort
from onnxfde.lumping.partition import partition
from onnxfde.neurons.merge_order import merge_tree
from onnxfde.options import Linkage, Relation

EPS = 0.05
"""The threshold of all partitions; chosen."""
SIZES = ("6-128-6", "64-1024-64", "256-2048-256", "512-4096-512", "1024-8192-1024")
LARGEST = "1024-16384-1024"
"""The largest layer, for planted weights and the methods in `SCALED` only."""
NAIVE_SIZES = ("6-128-6", "16-256-16", "64-1024-64")
"""Where the naive baseline, whose time grows with n²d², still takes seconds."""
BY_NEURONS = tuple(f"256-{n}-256" for n in (1024, 2048, 4096, 8192))
"""Layers that differ in n only, to fit the growth with n."""
BY_INPUTS = tuple(f"{d}-4096-{d}" for d in (128, 256, 512, 1024))
"""Layers that differ in d and m only, to fit the growth with d."""
KINDS = ("planted", "distinct", "cluster")
METHODS = (
    "budget", "forward closure", "backward closure", "forward diameter", "backward diameter",
)  # fmt: skip
SCALED = METHODS[:3]
"""The methods that are also measured on the largest layer, fitted and plotted."""
MOST_DIAMETER_CLUSTER = 1024
"""The most neurons for diameter on one cluster, which computes all distances (5 s at 1,024)."""
REPEATED = 1024
"""Layers with up to so many neurons are measured `REPEATS` times, larger ones once; chosen."""
REPEATS = 5
"""Runs of which the shortest counts; chosen."""
HEADER = "d-n-m | weights | method | seconds | ratio to the Gram product | peak MB | pairs"


def best_seconds(work: Callable[[], object], repeat: int = 1) -> float:
    """The shortest of some runs."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def run_one(shape: str, kind: str, method: str) -> dict[str, Any]:
    """Measure one method on one layer, in this process."""
    layer = make_layer(shape, kind)
    effort = Effort()
    if method == "budget":

        def work() -> object:
            return merge_tree(layer.incoming, layer.outgoing)
    else:
        words = method.split()
        relation: Relation = "forward" if words[0] == "forward" else "backward"
        linkage: Linkage = "closure" if words[1] == "closure" else "diameter"

        def work() -> object:
            effort.evaluated = 0
            return partition(layer, EPS, relation, linkage=linkage, effort=effort)

    spent = best_seconds(work, REPEATS if layer.neurons <= REPEATED else 1)
    peak = peak_megabytes()
    gram = best_seconds(lambda: layer.incoming @ layer.incoming.T, 3)
    return {"seconds": spent, "gram": gram, "megabytes": peak, "pairs": effort.evaluated}


def measured(shape: str, kind: str, method: str) -> dict[str, Any]:
    """The same in a fresh process."""
    return run_apart("benchmarks.scale", shape, kind, method)


def cases() -> Iterator[tuple[str, str, str]]:
    """What to measure."""
    for shape in SIZES:
        for kind in KINDS:
            for method in METHODS:
                small = int(shape.split("-")[1]) <= MOST_DIAMETER_CLUSTER
                if kind != "cluster" or "diameter" not in method or small:
                    yield shape, kind, method
    for method in SCALED:
        yield LARGEST, "planted", method


def exponent(shapes: Iterable[str], axis: int, method: str) -> float:
    """The slope of log time against the log of one dimension (0: inputs, 1: neurons)."""
    size = [int(shape.split("-")[axis]) for shape in shapes]
    spent = [measured(shape, "planted", method)["seconds"] for shape in shapes]
    return float(np.polyfit(np.log(size), np.log(spent), 1)[0])


def naive_rows() -> Iterator[tuple[object, ...]]:
    """The naive baseline beside ours."""
    for shape in NAIVE_SIZES:
        layer = make_layer(shape, "planted")
        slow = best_seconds(partial(naive_backward_closure, layer, EPS))
        fast = best_seconds(partial(partition, layer, EPS, "backward"), 3)
        yield (
            shape, "planted", "naive expansion, backward closure", f"{slow:.3f}",
            f"{slow / fast:.0f} × ours", "–", f"{layer.neurons * (layer.neurons - 1) // 2:,}",
        )  # fmt: skip


def plot(results: dict[tuple[str, str, str], dict[str, Any]]) -> None:
    """Time against n, log–log, on the planted layers."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    shapes = [*SIZES, LARGEST]
    for method in SCALED:
        chosen = [s for s in shapes if (s, "planted", method) in results]
        size = [int(s.split("-")[1]) for s in chosen]
        axes.loglog(
            size, [results[s, "planted", method]["seconds"] for s in chosen], "o-", label=method
        )
    size = [int(s.split("-")[1]) for s in shapes]
    grams = [results[s, "planted", "budget"]["gram"] for s in shapes]
    axes.loglog(size, grams, "k--", label="one float64 Gram product")
    axes.set_xlabel("neurons n (d and m grow too)")
    axes.set_ylabel("seconds")
    axes.legend()
    figure.tight_layout()
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=120)


def growth_rows() -> Iterator[tuple[object, ...]]:
    """How the time grows with neurons and with inputs."""
    for method in SCALED:
        by_n, by_d = exponent(BY_NEURONS, 1, method), exponent(BY_INPUTS, 0, method)
        yield "growth", "planted", method, f"n^{by_n:.2f}, d^{by_d:.2f}", "–", "–", "–"


def main() -> None:
    """All layers and methods; one case, as JSON, if it is named on the command line."""
    if len(sys.argv) == 4:
        print(json.dumps(run_one(*sys.argv[1:])))
        return
    results = {}
    for case in cases():
        results[case] = measured(*case)
        print(*case, results[case], file=sys.stderr)
    rows: list[tuple[object, ...]] = [
        (
            *case, f"{found['seconds']:.3f}", f"{found['seconds'] / found['gram']:.2f}",
            f"{found['megabytes']:.0f}", f"{found['pairs']:,}",
        )
        for case, found in results.items()
    ]  # fmt: skip
    rows += [*naive_rows(), *growth_rows()]
    table.write(__file__, "Partitions and merge orders at scale", HEADER, rows)
    plot(results)


if __name__ == "__main__":
    main()
