"""Square-activation networks trained for the benchmarks, and cached as ONNX files.

Each task gives train and test rows; `trained(task, seed)` trains d-n-m with x² in torch, exports
it with torch.onnx as a user would, and keeps `<task>-<seed>.onnx` in `benchmarks/.cache`.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

CACHE = Path(__file__).parent / ".cache"
SHARED = Path(__file__).parents[2] / "shared"


@dataclass(frozen=True)
class Rows:
    """Training and test rows of one task; integer targets are class labels."""

    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array


@dataclass(frozen=True)
class Task:
    """A task: its rows, its hidden width and how long to train."""

    name: str
    rows: Callable[[int], Rows]
    hidden: int
    epochs: int
    batch: int
    rate: float


@dataclass(frozen=True)
class Trained:
    """A trained network on disk with the rows that belong to it."""

    path: Path
    rows: Rows


def glycolysis(s: Array) -> Array:
    """Right-hand side of the 7-species glycolytic oscillator."""
    j0, k1, k2, k3, k4, k5, k6 = 2.5, 100.0, 6.0, 16.0, 100.0, 1.28, 12.0
    k, kappa, q, cap, psi, n, a = 1.8, 13.0, 4, 0.52, 0.1, 1.0, 4.0
    s1, s2, s3, s4, s5, s6, s7 = s.T
    v = k1 * s1 * s6 / (1 + (s6 / cap) ** q)
    return np.stack(
        [
            j0 - v,
            2 * v - k2 * s2 * (n - s5) - k6 * s2 * s5,
            k2 * s2 * (n - s5) - k3 * s3 * (a - s6),
            k3 * s3 * (a - s6) - k4 * s4 * s5 - kappa * (s4 - s7),
            k2 * s2 * (n - s5) - k4 * s4 * s5 - k6 * s2 * s5,
            -2 * v + 2 * k3 * s3 * (a - s6) - k5 * s6,
            psi * kappa * (s4 - s7) - k * s7,
        ],
        axis=1,
    )


def min_max(a: Array, reference: Array) -> Array:
    """Scale columns so that those of `reference` fill [0, 1]."""
    low, high = reference.min(axis=0), reference.max(axis=0)
    return np.asarray((a - low) / (high - low))


def gly_rows(seed: int) -> Rows:
    """30,000 uniform states in [0, 100]⁷ and their derivatives, min-max scaled, 90/10."""
    states = np.random.default_rng(seed).uniform(0, 100, (30_000, 7))
    targets = glycolysis(states)
    x = min_max(states, states[:27_000]).astype(np.float32)
    y = min_max(targets, targets[:27_000]).astype(np.float32)
    return Rows(x[:27_000], y[:27_000], x[27_000:], y[27_000:])


def digits_rows(seed: int) -> Rows:
    """scikit-learn's 1,797 8×8 digits in [0, 1], 80/20."""
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(seed).permutation(len(data.target))
    x = (data.data[order] / 16).astype(np.float32)
    y = data.target[order].astype(np.int64)
    return Rows(x[:1437], y[:1437], x[1437:], y[1437:])


def read_idx(path: Path) -> Array:
    """An IDX file of unsigned bytes, as MNIST is distributed."""
    with gzip.open(path) as stream:
        raw = stream.read()
    rank = raw[3]
    shape = np.frombuffer(raw, ">i4", rank, 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(shape)


def mnist_rows(seed: int = 0) -> Rows:
    """MNIST's 60,000 + 10,000 images as rows of 784 values in [0, 1]."""
    del seed
    images = [
        read_idx(SHARED / f"data/mnist-{part}-images-idx3-ubyte.gz") for part in ("train", "t10k")
    ]
    labels = [
        read_idx(SHARED / f"data/mnist-{part}-labels-idx1-ubyte.gz") for part in ("train", "t10k")
    ]
    x_train, x_test = ((a.reshape(len(a), -1) / 255).astype(np.float32) for a in images)
    y_train, y_test = (a.astype(np.int64) for a in labels)
    return Rows(x_train, y_train, x_test, y_test)


TASKS = {
    task.name: task
    for task in (
        Task("gly", gly_rows, hidden=120, epochs=150, batch=256, rate=0.005),
        Task("digits", digits_rows, hidden=256, epochs=60, batch=64, rate=0.001),
        Task("mnist", mnist_rows, hidden=256, epochs=8, batch=128, rate=0.001),
    )
}


def trained(name: str, seed: int = 0) -> Trained:
    """The network of a task, from the cache or trained now."""
    task = TASKS[name]
    rows = task.rows(seed)
    path = CACHE / f"{name}-{seed}.onnx"
    if not path.exists():
        CACHE.mkdir(exist_ok=True)
        train(task, rows, seed, path)
    return Trained(path, rows)


def train(task: Task, rows: Rows, seed: int, path: Path) -> None:
    """Adam with a cosine schedule on d-n-m with x², exported by torch.onnx."""
    import torch

    class Square(torch.nn.Module):  # type: ignore[misc]  # torch is not typed here
        def forward(self, x: Any) -> Any:
            return x * x

    torch.manual_seed(seed)
    classes = rows.y_train.dtype == np.int64
    outputs = int(rows.y_train.max()) + 1 if classes else rows.y_train.shape[1]
    inputs = rows.x_train.shape[1]
    net = torch.nn.Sequential(
        torch.nn.Linear(inputs, task.hidden), Square(), torch.nn.Linear(task.hidden, outputs)
    )
    loss_of = torch.nn.CrossEntropyLoss() if classes else torch.nn.MSELoss()
    optimizer = torch.optim.Adam(net.parameters(), task.rate)
    x, y = torch.from_numpy(rows.x_train), torch.from_numpy(rows.y_train)
    steps = task.epochs * (len(x) // task.batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(task.epochs):
        for batch in torch.randperm(len(x))[: len(x) // task.batch * task.batch].split(task.batch):
            optimizer.zero_grad()
            loss_of(net(x[batch]), y[batch]).backward()
            optimizer.step()
            schedule.step()
    torch.onnx.export(
        net.eval(),
        (x[:2],),
        str(path),
        input_names=["x"],
        output_names=["y"],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        external_data=False,
        verbose=False,
    )
