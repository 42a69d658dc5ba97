"""Shrinking a benchmark network by one of the methods to compare, and measuring what is left.

Every figure comes from the test rows and the saved float32 model in onnxruntime. The time hangs on
the threads of the linear algebra: small products wait for each other where cores are busy.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from statistics import mean

import onnx

import onnxfde
from benchmarks import peers
from benchmarks.cryptonets import images
from benchmarks.nets import TASKS, trained
from benchmarks.tasks import Array, mnist_rows, shared_file
from onnxfde.graph.size import count_parameters
from onnxfde.options import Quotient

ROWS = 1000
IMAGES = 4000


@dataclass(frozen=True, eq=False)
class Net:
    """A network, what onnxfde may know of its inputs, and the rows to judge it on."""

    path: Path
    input: str
    limits: tuple[float, float]
    known: Array
    x_test: Array
    y_test: Array


@dataclass(frozen=True)
class Shrunk:
    """A smaller model, and what onnxfde says of the layer in it."""

    model: onnx.ModelProto
    error: float | None = None
    bound: float | None = None


@dataclass(frozen=True)
class Outcome:
    """How small a network became, and how good it still is."""

    before: int
    neurons: int
    grp: float
    metric: str
    base: float
    score: float
    seconds: float
    error: float | None
    bound: float | None

    @property
    def ratio(self) -> float:
        """The error of the result in terms of the original's."""
        return self.score / self.base

    @property
    def lost(self) -> float:
        """Points of accuracy lost."""
        return 100 * (self.base - self.score)

    @property
    def cost(self) -> float:
        """What it cost: the ratio of errors, or points lost."""
        return self.lost if self.metric == "accuracy" else self.ratio


@cache
def load(name: str, seed: int) -> Net:
    """A network by name."""
    if name == "cryptonets":
        rows = mnist_rows()
        path = shared_file("models/cryptonets_square.onnx")
        known, test = images(rows.x_train[:IMAGES]), images(rows.x_test)
        return Net(path, "input", rows.limits, known, test, rows.y_test)
    net = trained(name, seed)
    rows = net.rows
    known = rows.x_train[: IMAGES if name == "mnist" else ROWS].copy()
    return Net(net.path, "x", rows.limits, known, rows.x_test, rows.y_test)


def seeds(name: str) -> tuple[int, ...]:
    """The seeds that a network was trained with."""
    return TASKS[name].seeds if name in TASKS else (0,)


def merged(quotient: Quotient, data: bool, net: Net, neurons: int) -> Shrunk:
    """By onnxfde."""
    result = onnxfde.optimize(
        net.path,
        neurons=neurons,
        quotient=quotient,
        data={net.input: net.known} if data else None,
        input_range=net.limits,
        verify=False,
    )
    (layer,) = result.report.layers
    return Shrunk(result.model, layer.error, layer.lower_bound)


def pruned(tool: Callable[[onnx.ModelProto, int], onnx.ModelProto], net: Net, n: int) -> Shrunk:
    """By something else."""
    return Shrunk(tool(onnx.load(net.path), n))


RANGE, DATA = "minimal, range", "minimal, data"
METHODS: dict[str, Callable[[Net, int], Shrunk]] = {
    RANGE: partial(merged, "minimal", False),
    DATA: partial(merged, "minimal", True),
    "refit, range": partial(merged, "refit", False),
    "refit, data": partial(merged, "refit", True),
    "single, range": partial(merged, "single", False),
    "single, data": partial(merged, "single", True),
    "magnitude pruning": partial(pruned, peers.magnitude),
    "Torch-Pruning": partial(pruned, peers.torch_pruning),
    "onnxsim": partial(pruned, peers.onnxsim),
}


def timed(work: Callable[[], Shrunk], threads: int | None) -> tuple[Shrunk, float]:
    """Work and its seconds, with so many threads for linear algebra (None: as many as it takes)."""
    import_module("scipy.optimize")  # its own linear algebra is limited only once it is loaded
    with import_module("threadpoolctl").threadpool_limits(threads, user_api="blas"):
        start = time.perf_counter()
        return work(), time.perf_counter() - start


@cache
def measured(
    name: str, seed: int, method: str, neurons: int, threads: int | None = None
) -> Outcome:
    """Shrink, save, and run what was saved on the test rows."""
    net = load(name, seed)
    shrunk, seconds = timed(partial(METHODS[method], net, neurons), threads)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.onnx"
        onnx.save(shrunk.model, path)
        found = onnxfde.verify(net.path, path, data={net.input: net.x_test, "y": net.y_test})
        original, saved = onnx.load(net.path), onnx.load(path)
    assert found.metric
    assert found.metric_before is not None
    assert found.metric_after is not None
    outcome = Outcome(
        before=peers.layer_of(original).neurons,
        neurons=peers.layer_of(saved).neurons,
        grp=100 * count_parameters(saved, original) / count_parameters(original),
        metric=found.metric,
        base=found.metric_before,
        score=found.metric_after,
        seconds=seconds,
        error=shrunk.error,
        bound=shrunk.bound,
    )
    print(f"{name}-{seed} {method} {neurons}: {cost_text([outcome])}", file=sys.stderr)
    return outcome


def score_text(metric: str, score: float) -> str:
    """Accuracy in percent, or the error."""
    return f"{score:.2%}" if metric == "accuracy" else f"{score:.4g}"


def cost_text(found: list[Outcome]) -> str:
    """The mean cost, and the worst of several."""
    costs = [outcome.cost for outcome in found]
    worst = f" ({max(costs):.4g})" if len(costs) > 1 else ""
    unit = "points lost" if found[0].metric == "accuracy" else "×"
    return f"{mean(costs):.4g}{worst} {unit}"
