"""What is left of a LeNet-5 whose activations are x² + x?

`python -m benchmarks.lenet` (needs torch and the shared folder) trains it on MNIST, exports it with
torch.onnx as a user would, lets `onnxfde optimize` merge it with 4,000 unlabelled training images,
and measures the accuracy on the 10,000 test images. Its layers have 6 and 16 channels and 120 and
84 neurons.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import onnxfde
from benchmarks.common import table
from benchmarks.common.datasets import MNIST_KNOWN, mnist_rows
from benchmarks.common.folders import CACHE
from onnxfde.numbers import Array

STEPS = (0.0, 0.03, 0.1, 0.2, 0.3)
"""The ε to try; chosen from no change to a clear loss of accuracy."""
EPOCHS = 4
BATCH = 128
RATE = 2e-3
"""Chosen: a few minutes on two cores, about 99 % of the test images."""
LARGEST_GRADIENT = 1.0
"""Gradients are clipped to this norm, because polynomials of polynomials grow fast. Chosen."""


def images(rows: Array) -> Array:
    """MNIST rows as images with one channel."""
    return rows.reshape(-1, 1, 28, 28)


def lenet() -> Any:
    """LeNet-5 with x² + x in place of tanh."""
    import torch
    from torch import nn

    class Polynomial(nn.Module):  # type: ignore[misc]  # torch is not typed here
        def forward(self, x: Any) -> Any:
            return x * x + x

    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), Polynomial(), nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5), Polynomial(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), Polynomial(), nn.Linear(120, 84), Polynomial(), nn.Linear(84, 10),
    )  # fmt: skip


def train(net: Any) -> None:
    """Adam with a cosine schedule."""
    import torch

    rows = mnist_rows()
    x, y = torch.from_numpy(images(rows.x_train)), torch.from_numpy(rows.y_train)
    whole = len(x) // BATCH * BATCH
    optimizer = torch.optim.Adam(net.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * whole // BATCH)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x))[:whole].split(BATCH):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), LARGEST_GRADIENT)
            optimizer.step()
            schedule.step()


def trained_lenet() -> Path:
    """The network, from the cache or trained now."""
    path = CACHE / "lenet.onnx"
    if not path.exists():
        import torch

        net = lenet()
        train(net)
        CACHE.mkdir(exist_ok=True)
        torch.onnx.export(
            net.eval(),
            (torch.zeros(2, 1, 28, 28),),
            str(path),
            input_names=["x"],
            output_names=["y"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            external_data=False,
            verbose=False,
        )
    return path


def optimized(path: Path, known: Path, eps: float, folder: Path) -> tuple[Path, dict[str, Any]]:
    """The merged network and the report of the command that made it."""
    out, report = folder / f"{eps}.onnx", folder / f"{eps}.json"
    command = [sys.executable, "-m", "onnxfde", "optimize", str(path), str(out), "--eps", str(eps)]
    options = ["--data", str(known), "--report", str(report), "--quiet"]
    subprocess.run([*command, *options], check=True)
    found: dict[str, Any] = json.loads(report.read_text())
    return out, found


def row(path: Path, known: Path, test: dict[str, Array], eps: float, folder: Path) -> list[object]:
    """The network at one ε."""
    out, report = optimized(path, known, eps, folder)
    seen = onnxfde.verify(path, out, data=test)
    layers = " and ".join(f"{x['neurons_before']} → {x['neurons_after']}" for x in report["layers"])
    parameters, size = report["parameters"], report["bytes"]
    return [
        eps,
        layers,
        f"{parameters['before']:,} → {parameters['after']:,}",
        f"{size['before']:,} → {size['after']:,}",
        "n/a" if seen.relative_l2 is None else f"{seen.relative_l2:.4f}",
        f"{seen.metric_before:.2%} → {seen.metric_after:.2%}",
        f"{sum(report['seconds'].values()):.0f}",
    ]


def main() -> None:
    """One row per ε."""
    path, rows = trained_lenet(), mnist_rows()
    test = {"x": images(rows.x_test), "y": rows.y_test}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        known = folder / "known.npz"
        np.savez(known, x=images(rows.x_train[:MNIST_KNOWN]))
        lines = [row(path, known, test, eps, folder) for eps in STEPS]
    header = (
        "ε | channels and neurons | parameters | bytes | relative error on test images "
        "| test accuracy | seconds"
    )
    note = (
        f"Two convolutions and two dense layers, merged with {MNIST_KNOWN:,} unlabelled training "
        "images."
    )
    table.write_sections(
        __file__, "LeNet-5 with x² + x on MNIST", [table.Section("", header, lines)], note
    )


if __name__ == "__main__":
    main()
