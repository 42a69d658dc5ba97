"""Square-activation networks trained for the benchmarks, and cached as ONNX files.

`trained(task, seed)` trains d-n-m with x² on the rows of a task in torch, exports it with
torch.onnx as a user would, and keeps `<task>-<seed>.onnx` in `benchmarks/.cache`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.common.datasets import (
    Rows,
    abalone_rows,
    digits_rows,
    gly_rows,
    mnist_rows,
    protein_rows,
    rn_rows,
)
from benchmarks.common.folders import CACHE
from benchmarks.common.torch_training import export_network, fitted, seeded


@dataclass(frozen=True)
class Task:
    """What a network learns, its hidden width, how it is trained, and with which seeds."""

    name: str
    rows: Callable[[int], Rows]
    hidden: int
    epochs: int
    batch: int
    rate: float
    seeds: tuple[int, ...] = (0, 1, 2)


@dataclass(frozen=True)
class Trained:
    """A trained network on disk, and the rows it was trained on and is tested on."""

    path: Path
    rows: Rows


TASKS = {
    task.name: task
    for task in (
        Task("gly", gly_rows, hidden=120, epochs=150, batch=256, rate=0.005),
        Task("rn", rn_rows, hidden=120, epochs=150, batch=256, rate=0.005),
        Task("abalone", abalone_rows, hidden=120, epochs=200, batch=128, rate=0.003),
        Task("protein", protein_rows, hidden=120, epochs=100, batch=512, rate=0.01),
        Task("digits", digits_rows, hidden=256, epochs=60, batch=64, rate=0.001),
        Task("mnist", mnist_rows, hidden=256, epochs=8, batch=128, rate=0.001, seeds=(0,)),
    )
}
"""120 is the width of the paper's simulated systems; epochs, batches and rates were chosen."""


def trained(name: str, seed: int = 0) -> Trained:
    """The network of a task, from the cache or trained now."""
    task = TASKS[name]
    rows = task.rows(seed)
    path = CACHE / f"{name}-{seed}.onnx"
    if not path.exists():
        CACHE.mkdir(exist_ok=True)
        export(train(task, rows, seed), rows, path)
    return Trained(path, rows)


def square() -> Any:
    """x² as a module of torch."""
    import torch

    class Square(torch.nn.Module):  # type: ignore[misc]  # torch is not typed here
        def forward(self, x: Any) -> Any:
            return x * x

    return Square()


def square_layers(widths: tuple[int, ...]) -> Any:
    """Linear maps between the widths, with x² after the first, the third and so on."""
    import torch

    layers = []
    for i, (inputs, outputs) in enumerate(pairwise(widths)):
        layers += [torch.nn.Linear(inputs, outputs), square()][: 2 - i % 2]
    return torch.nn.Sequential(*layers)


def deep_square(task: Task, rows: Rows, folder: Path) -> Path:
    """A network d-n-n/2-m with x² after both hidden layers, trained now if it is missing."""
    import torch

    path = folder / f"{task.name}-0.onnx"
    if not path.exists():
        seeded(0)
        first, second, outputs = task.hidden, task.hidden // 2, rows.outputs
        maps = [torch.nn.Linear(*shape) for shape in pairwise(
            (rows.x_train.shape[1], first, second, outputs))]  # fmt: skip
        net = torch.nn.Sequential(maps[0], square(), maps[1], square(), maps[2])
        folder.mkdir(parents=True, exist_ok=True)
        export(fitted(net, rows, task), rows, path)
    return path


def train(task: Task, rows: Rows, seed: int) -> Any:
    """The network of a task after training."""
    seeded(seed)
    return fitted(square_layers((rows.x_train.shape[1], task.hidden, rows.outputs)), rows, task)


def export(net: Any, rows: Rows, path: Path) -> None:
    """Write a network as a user of torch would."""
    export_network(net, rows.x_train[:2], path)
