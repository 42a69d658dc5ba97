"""Dense networks with one activation, trained in torch and exported with torch.onnx."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.datasets import Rows

ACTIVATIONS = {"relu": "ReLU", "gelu": "GELU", "silu": "SiLU", "tanh": "Tanh"}
"""torch's names of the activations."""


@dataclass(frozen=True)
class DenseTask:
    """A network: its name, whose rows it learns, its hidden widths, and how it is trained."""

    name: str
    data: str
    hidden: tuple[int, ...]
    activation: str
    epochs: int
    batch: int
    rate: float
    seed: int = 0


SMALL = (("digits", 256, 60, 64, 1e-3), ("abalone", 120, 200, 128, 3e-3))
IMAGES = (("mnist", 256, 8, 128, 1e-3), ("fashion", 256, 12, 128, 1e-3))
"""Data, width, epochs, batch and rate: those of `square_networks`; chosen for FashionMNIST."""
DENSE = {
    task.name: task
    for task in (
        *(
            DenseTask(f"{data}-{activation}", data, (width,), activation, epochs, batch, rate)
            for data, width, epochs, batch, rate in (*SMALL, *IMAGES)
            for activation in ACTIVATIONS
        ),
        *(
            DenseTask(f"lenet-{seed}", "fashion", (300, 100), "relu", 16, 128, 1e-3, seed)
            for seed in range(3)
        ),
        DenseTask("mnist-deep", "mnist", (256,) * 4, "relu", 16, 128, 1e-3),
    )
}
"""Every dense network of this benchmark, by name."""


def dense_layers(widths: tuple[int, ...], activation: str) -> Any:
    """Linear maps between the widths, with the activation after all but the last."""
    import torch

    layers: list[Any] = []
    for inputs, outputs in pairwise(widths):
        layers += [torch.nn.Linear(inputs, outputs), getattr(torch.nn, ACTIVATIONS[activation])()]
    return torch.nn.Sequential(*layers[:-1])


def untrained(task: DenseTask, rows: Rows) -> Any:
    """The network of a task with torch's random weights."""
    return dense_layers((rows.x_train.shape[1], *task.hidden, rows.outputs), task.activation)


def train(task: DenseTask, rows: Rows) -> Any:
    """Adam with a cosine schedule; keeps the epoch with the lowest validation loss, if any."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(task.seed)
    net = untrained(task, rows)
    loss_of = torch.nn.CrossEntropyLoss() if rows.classes else torch.nn.MSELoss()
    x, y, x_val, y_val = map(torch.from_numpy, (rows.x_train, rows.y_train, rows.x_val, rows.y_val))
    best, best_state = np.inf, {}
    for _ in epochs(net, loss_of, (x, y), task):
        if len(x_val) and (loss := loss_of(net(x_val), y_val).item()) < best:
            best, best_state = loss, deepcopy(net.state_dict())
    if best_state:
        net.load_state_dict(best_state)
    return net.eval()


def epochs(net: Any, loss_of: Any, rows: tuple[Any, Any], task: Any) -> Any:
    """Train in place; yields after each epoch."""
    import torch

    x, y = rows
    whole = len(x) // task.batch * task.batch
    optimizer = torch.optim.Adam(net.parameters(), task.rate)
    steps = task.epochs * whole // task.batch
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for epoch in range(task.epochs):
        for batch in torch.randperm(len(x))[:whole].split(task.batch):
            optimizer.zero_grad()
            loss_of(net(x[batch]), y[batch]).backward()
            optimizer.step()
            schedule.step()
        yield epoch


def export(net: Any, x: Any, path: Path, free: tuple[str, ...] = ("batch",)) -> None:
    """Write a network as a user of torch would; its first axes, named in `free`, are dynamic."""
    import torch

    shape = {axis: torch.export.Dim(name) for axis, name in enumerate(free)}
    torch.onnx.export(
        net, (torch.from_numpy(x),), str(path), input_names=["x"], output_names=["y"],
        dynamic_shapes=(shape,), external_data=False, verbose=False,
    )  # fmt: skip
