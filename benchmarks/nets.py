"""Square-activation networks trained for the benchmarks, and cached as ONNX files.

`trained(task, seed)` trains d-n-m with x² on the rows of a task (`benchmarks.tasks`) in torch,
exports it with torch.onnx as a user would, and keeps `<task>-<seed>.onnx` in `benchmarks/.cache`.
`python -m benchmarks.nets` (extra `paper`, and the shared folder) trains them all, and shows how
good they are beside the least-squares quadratic: no square layer fits the training rows better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import table
from benchmarks.tasks import (
    Array,
    Rows,
    abalone_rows,
    digits_rows,
    gly_rows,
    mnist_rows,
    protein_rows,
    rn_rows,
)

CACHE = Path(__file__).parent / ".cache"


@dataclass(frozen=True)
class Task:
    """A task: its rows, its hidden width, how to train, and how often with other seeds."""

    name: str
    rows: Callable[[int], Rows]
    hidden: int
    epochs: int
    batch: int
    rate: float
    seeds: tuple[int, ...] = (0, 1, 2)


@dataclass(frozen=True)
class Trained:
    """A trained network on disk with the rows that belong to it."""

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


def trained(name: str, seed: int = 0) -> Trained:
    """The network of a task, from the cache or trained now."""
    task = TASKS[name]
    rows = task.rows(seed)
    path = CACHE / f"{name}-{seed}.onnx"
    if not path.exists():
        CACHE.mkdir(exist_ok=True)
        export(train(task, rows, seed), rows, path)
    return Trained(path, rows)


def square_net(inputs: int, hidden: int, outputs: int) -> Any:
    """d-n-m with x² between two linear maps."""
    import torch

    class Square(torch.nn.Module):  # type: ignore[misc]  # torch is not typed here
        def forward(self, x: Any) -> Any:
            return x * x

    return torch.nn.Sequential(
        torch.nn.Linear(inputs, hidden), Square(), torch.nn.Linear(hidden, outputs)
    )


def train(task: Task, rows: Rows, seed: int) -> Any:
    """Adam with a cosine schedule; of all epochs the one that validates best."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    net = square_net(rows.x_train.shape[1], task.hidden, rows.outputs)
    loss_of = torch.nn.CrossEntropyLoss() if rows.classes else torch.nn.MSELoss()
    optimizer = torch.optim.Adam(net.parameters(), task.rate)
    x, y, x_val, y_val = map(torch.from_numpy, (rows.x_train, rows.y_train, rows.x_val, rows.y_val))
    whole = len(x) // task.batch * task.batch
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, task.epochs * whole // task.batch
    )
    best, best_state = np.inf, {}
    for _ in range(task.epochs):
        for batch in torch.randperm(len(x))[:whole].split(task.batch):
            optimizer.zero_grad()
            loss_of(net(x[batch]), y[batch]).backward()
            optimizer.step()
            schedule.step()
        if len(x_val) and (loss := loss_of(net(x_val), y_val).item()) < best:
            best, best_state = loss, deepcopy(net.state_dict())
    if best_state:
        net.load_state_dict(best_state)
    return net


def export(net: Any, rows: Rows, path: Path) -> None:
    """Write a network as a user of torch would."""
    import torch

    torch.onnx.export(
        net.eval(),
        (torch.from_numpy(rows.x_train[:2]),),
        str(path),
        input_names=["x"],
        output_names=["y"],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        external_data=False,
        verbose=False,
    )


def predicted(path: Path, x: Array) -> Array:
    """What a network says in onnxruntime."""
    from onnxruntime import InferenceSession

    (output,) = InferenceSession(path).run(None, {"x": x})
    return np.asarray(output)


def score(output: Array, target: Array) -> float:
    """Accuracy for labels, the mean squared error for numbers."""
    if target.ndim == 1:
        return float(np.mean(output.argmax(axis=1) == target))
    return float(np.mean((output.astype(np.float64) - target) ** 2))


def quadratic_limit(rows: Rows) -> float:
    """The test error of the quadratic that is closest to the training rows."""
    best, *_ = np.linalg.lstsq(quadratic(rows.x_train), rows.y_train.astype(np.float64), rcond=None)
    return score(quadratic(rows.x_test) @ best, rows.y_test)


def quadratic(x: Array) -> Array:
    """All monomials up to degree 2."""
    z = np.hstack([x.astype(np.float64), np.ones((len(x), 1))])
    i, j = np.triu_indices(z.shape[1])
    return np.asarray(z[:, i] * z[:, j])


def summary() -> Iterator[tuple[object, ...]]:
    """One row a network."""
    for task in TASKS.values():
        for seed in task.seeds:
            net = trained(task.name, seed)
            rows, found = net.rows, score(predicted(net.path, net.rows.x_test), net.rows.y_test)
            shape = f"{rows.x_train.shape[1]}-{task.hidden}-{rows.outputs}"
            if rows.classes:
                yield task.name, shape, seed, f"accuracy {found:.2%}", "–"
            else:
                yield task.name, shape, seed, f"MSE {found:.4g}", f"{quadratic_limit(rows):.4g}"


def main() -> None:
    """Train what is not trained yet, and say how good it is."""
    header = "task | shape | seed | test | least-squares quadratic"
    table.write(__file__, "The networks of the benchmarks", header, summary())


if __name__ == "__main__":
    main()
