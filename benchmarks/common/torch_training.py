"""Training in torch, and exporting as a user of torch would."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.common.datasets import Rows
from onnxfde.numbers import Array


class Schedule(Protocol):
    """How long and how fast a network is trained."""

    @property
    def epochs(self) -> int:
        """How often every row is seen."""

    @property
    def batch(self) -> int:
        """Rows of one step."""

    @property
    def rate(self) -> float:
        """The first learning rate."""


def seeded(seed: int) -> None:
    """One thread and a known seed: what is trained from here on is the same every time."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(seed)


def fitted(net: Any, rows: Rows, schedule: Schedule) -> Any:
    """Train; keeps the epoch with the lowest validation loss, if there are validation rows."""
    import torch

    loss_of = torch.nn.CrossEntropyLoss() if rows.classes else torch.nn.MSELoss()
    x, y, x_val, y_val = map(torch.from_numpy, (rows.x_train, rows.y_train, rows.x_val, rows.y_val))
    best, best_state = np.inf, {}
    for _ in epochs(net, loss_of, (x, y), schedule):
        if len(x_val) and (loss := loss_of(net(x_val), y_val).item()) < best:
            best, best_state = loss, deepcopy(net.state_dict())
    if best_state:
        net.load_state_dict(best_state)
    return net.eval()


def epochs(net: Any, loss_of: Any, rows: tuple[Any, Any], schedule: Schedule) -> Iterator[int]:
    """Adam with a cosine schedule, in place; yields after each epoch."""
    import torch

    x, y = rows
    whole = len(x) // schedule.batch * schedule.batch
    optimizer = torch.optim.Adam(net.parameters(), schedule.rate)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimizer, schedule.epochs * whole // schedule.batch
    )
    for epoch in range(schedule.epochs):
        for batch in torch.randperm(len(x))[:whole].split(schedule.batch):
            optimizer.zero_grad()
            loss_of(net(x[batch]), y[batch]).backward()
            optimizer.step()
            rates.step()
        yield epoch


def export_network(net: Any, x: Array, path: Path, free: tuple[str, ...] = ("batch",)) -> None:
    """Write a network as a user of torch would; its first axes, named in `free`, are dynamic."""
    import torch

    torch.onnx.export(
        net.eval(),
        (torch.from_numpy(x),),
        str(path),
        input_names=["x"],
        output_names=["y"],
        dynamic_shapes=({axis: torch.export.Dim(name) for axis, name in enumerate(free)},),
        external_data=False,
        verbose=False,
    )
