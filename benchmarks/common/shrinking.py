"""Shrinking a benchmark network by one of the methods to compare, and measuring the result.

Every score comes from the saved float32 model on test rows in onnxruntime. The time depends on the
number of threads for linear algebra: on busy cores, the threads of small products wait for each
other.
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
from benchmarks.common import pruning
from benchmarks.common.cryptonets_square import INPUT, cryptonets_images, cryptonets_path
from benchmarks.common.datasets import MNIST_KNOWN, mnist_rows
from benchmarks.common.layers import only_layer
from benchmarks.common.scores import grp_percent
from benchmarks.common.square_networks import TASKS, trained
from onnxfde.numbers import Array
from onnxfde.options import Quotient

ROWS_KNOWN = 1000
"""Unlabelled training rows that the "data" methods may see, except on MNIST; chosen."""


@dataclass(frozen=True, eq=False)
class Net:
    """A network, what onnxfde may know about its inputs, and the test rows."""

    path: Path
    input: str
    limits: tuple[float, float]
    known: Array
    x_test: Array
    y_test: Array


@dataclass(frozen=True)
class Shrunk:
    """A smaller model, and what onnxfde reports about its layer."""

    model: onnx.ModelProto
    error: float | None = None
    bound: float | None = None


@dataclass(frozen=True)
class Outcome:
    """How small a network became, and how good it still is (`base`: how good it was)."""

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
        """The error of the result over that of the original."""
        return self.score / self.base

    @property
    def lost(self) -> float:
        """Points of accuracy lost."""
        return 100 * (self.base - self.score)

    @property
    def cost(self) -> float:
        """Points of accuracy lost, or the ratio of errors."""
        return self.lost if self.metric == "accuracy" else self.ratio


@cache
def load(name: str, seed: int) -> Net:
    """A network by name."""
    if name == "cryptonets":
        rows = mnist_rows()
        known, test = map(cryptonets_images, (rows.x_train[:MNIST_KNOWN], rows.x_test))
        return Net(cryptonets_path(), INPUT, rows.limits, known, test, rows.y_test)
    net = trained(name, seed)
    rows = net.rows
    known = rows.x_train[: MNIST_KNOWN if name == "mnist" else ROWS_KNOWN].copy()
    return Net(net.path, "x", rows.limits, known, rows.x_test, rows.y_test)


def seeds(name: str) -> tuple[int, ...]:
    """The seeds that a network was trained with."""
    return TASKS[name].seeds if name in TASKS else (0,)


def merged(quotient: Quotient, data: bool, net: Net, neurons: int) -> Shrunk:
    """Shrink with onnxfde."""
    result = onnxfde.optimize(
        net.path,
        neurons=neurons,
        quotient=quotient,
        data={net.input: net.known} if data else None,
        input_range=net.limits,
        verify=False,
    )
    (layer,) = (layer for layer in result.report.layers if layer.kind == "dense")
    return Shrunk(result.model, layer.error, layer.lower_bound)


def pruned(tool: Callable[[onnx.ModelProto, int], onnx.ModelProto], net: Net, n: int) -> Shrunk:
    """Shrink with one of the pruning functions."""
    return Shrunk(tool(onnx.load(net.path), n))


RANGE, DATA = "minimal, range", "minimal, data"
METHODS: dict[str, Callable[[Net, int], Shrunk]] = {
    RANGE: partial(merged, "minimal", False),
    DATA: partial(merged, "minimal", True),
    "refit, range": partial(merged, "refit", False),
    "refit, data": partial(merged, "refit", True),
    "single, range": partial(merged, "single", False),
    "single, data": partial(merged, "single", True),
    "magnitude pruning": partial(pruned, pruning.magnitude),
    "Torch-Pruning": partial(pruned, pruning.torch_pruning),
    "onnxsim": partial(pruned, pruning.onnxsim),
}


def timed(work: Callable[[], Shrunk], threads: int | None) -> tuple[Shrunk, float]:
    """The result and its seconds, with `threads` for linear algebra (None: the default)."""
    import_module("scipy.optimize")  # only libraries that are loaded already are limited
    with import_module("threadpoolctl").threadpool_limits(threads, user_api="blas"):
        start = time.perf_counter()
        return work(), time.perf_counter() - start


@cache
def measured(
    name: str, seed: int, method: str, neurons: int, threads: int | None = None
) -> Outcome:
    """Shrink a network, save it, and run the saved file on the test rows."""
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
        before=only_layer(original).neurons,
        neurons=only_layer(saved).neurons,
        grp=grp_percent(saved, original),
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
    """The mean cost, and the largest if there are several."""
    costs = [outcome.cost for outcome in found]
    worst = f" ({max(costs):.4g})" if len(costs) > 1 else ""
    unit = "points lost" if found[0].metric == "accuracy" else "×"
    return f"{mean(costs):.4g}{worst} {unit}"
