"""Dense networks with one activation between their linear maps, trained in torch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from benchmarks.common.datasets import Rows
from benchmarks.common.torch_training import fitted, seeded

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


def trained_network(task: DenseTask, rows: Rows) -> Any:
    """The network of a task after training."""
    seeded(task.seed)
    return fitted(untrained(task, rows), rows, task)
