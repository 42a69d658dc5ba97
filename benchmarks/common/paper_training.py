"""How the networks of the paper's evaluation are trained: Adam, then least squares.

A block W₂(W₁x + b₁)² + b₂ is linear in W₂ and b₂, and with 120 random rows of W₁ and b₁ it can
represent every quadratic of up to 14 inputs. A deep network therefore starts with blocks that pass
their inputs on (W₂ and b₂ by least squares) and a last block that fits the targets. Then Adam
trains all weights in large batches: the rate is halved when the validation error stalls, and the
epoch with the lowest validation error is kept. On simulated systems the last W₂ and b₂ are finally
solved for again: the least-squares solution nearest to what Adam found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.common.datasets import Rows
from benchmarks.common.square_networks import square_layers
from onnxfde.numbers import Array

VERSION = 1
"""Part of the name of every cached network: raise it when the training below changes."""
BLOCK = 3
"""Modules of torch per block: linear, square, linear."""
RANK_TOLERANCE = 1e-9
"""Singular values below this share of the largest count as rounding; chosen."""
STALL = 1e-3
"""The relative improvement of the validation error below which an epoch counts as stalled;
chosen."""


@dataclass(frozen=True)
class Recipe:
    """How to train; the values were chosen, the paper's grid was not searched."""

    epochs: int
    batch: int
    rate: float
    patience: int = 5
    """Epochs without a lower validation error before the rate is halved."""
    stop: int = 30
    """Epochs without a lower validation error before training ends."""
    solve: bool = True
    """Whether the last layer is solved for by least squares in the end."""
    version: int = VERSION


def recipe_of(system: str, variant: int) -> Recipe:
    """The recipe of a network."""
    if variant > 1 and system != "GLY":  # exact from the start: Adam changes little
        return Recipe(epochs=25, batch=256, rate=0.0005, patience=2, stop=10)
    if variant > 1:
        return Recipe(epochs=60, batch=256, rate=0.002 if variant == 2 else 0.0005)
    return {
        "Abalone": Recipe(epochs=150, batch=128, rate=0.003, solve=False),
        "HEPC": Recipe(epochs=20, batch=2048, rate=0.01, solve=False),
        "Metro": Recipe(epochs=60, batch=512, rate=0.01, solve=False),
        "Protein": Recipe(epochs=60, batch=512, rate=0.01, solve=False),
    }.get(system, Recipe(epochs=30, batch=512, rate=0.005))


def train(
    widths: tuple[int, ...], rows: Rows, recipe: Recipe, seed: int, tell: Callable[[str], None]
) -> Any:
    """A trained network of these widths."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    net = square_layers(widths)
    if len(widths) > 3:
        start(net, rows)
    adam(net, rows, recipe, tell)
    if recipe.solve:
        solve(net, rows.x_train, rows.y_train)
    return net


def adam(net: Any, rows: Rows, recipe: Recipe, tell: Callable[[str], None]) -> None:
    """Adam until the validation error stalls; leaves the best epoch's weights in the net."""
    import torch

    optimizer = torch.optim.Adam(net.parameters(), recipe.rate)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=recipe.patience, threshold=STALL
    )
    x, y, x_val, y_val = map(torch.from_numpy, (rows.x_train, rows.y_train, rows.x_val, rows.y_val))
    best, best_at, state = np.inf, 0, net.state_dict()
    for epoch in range(recipe.epochs):
        for batch in torch.randperm(len(x)).split(recipe.batch):
            optimizer.zero_grad()
            torch.mean((net(x[batch]) - y[batch]) ** 2).backward()
            optimizer.step()
        with torch.no_grad():
            loss = torch.mean((net(x_val) - y_val) ** 2).item()
        schedule.step(loss)
        if loss < best:
            best, best_at = loss, epoch
            state = {key: value.clone() for key, value in net.state_dict().items()}
        tell(f"epoch {epoch + 1} of {recipe.epochs}, validation {best:.2e}")
        if epoch - best_at >= recipe.stop:
            break
    net.load_state_dict(state)


def start(net: Any, rows: Rows) -> None:
    """Let all blocks but the last pass their inputs on, and the last one fit the targets."""
    for end in range(BLOCK, len(net), BLOCK):
        solve(net[:end], rows.x_train, rows.x_train)
    solve(net, rows.x_train, rows.y_train)


def solve(net: Any, x: Array, y: Array) -> None:
    """Give the last layer least-squares weights, the ones nearest to those it has."""
    import torch

    last = net[-1]
    with torch.no_grad():
        hidden = net[:-1].double()(torch.from_numpy(x).double()).numpy()
        design = np.hstack([hidden, np.ones((len(hidden), 1))])
        weights = np.hstack([last.weight.double().numpy(), last.bias.double().numpy()[:, None]])
        left = y - design @ weights.T
        weights += np.linalg.lstsq(design, left, rcond=RANK_TOLERANCE)[0].T
        net.float()
        last.weight.copy_(torch.from_numpy(weights[:, :-1]))
        last.bias.copy_(torch.from_numpy(weights[:, -1]))
