"""Two convolutional networks for FashionMNIST, trained in torch and exported as a user would.

vgg:          (Conv 3×3 → ReLU) twice, max pool, the same twice as wide, Flatten, two dense layers
mobilenetv2:  inverted residuals (1×1 wide, depthwise, 1×1 narrow; ReLU6, BatchNormalization)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.common.fashion import fashion_rows
from benchmarks.common.torch_training import export_network, fitted, seeded

CLASSES = 10
WIDEN = 3
"""How many times as many channels a block of the MobileNetV2 has inside; chosen."""
BLOCKS = ((24, 2), (24, 1), (32, 1), (32, 1))
"""Channels behind each block, and its stride."""


@dataclass(frozen=True)
class ConvTask:
    """A network, and how it is trained."""

    name: str
    untrained: Callable[[], Any]
    epochs: int
    batch: int = 128
    rate: float = 3e-3


def vgg() -> Any:
    """A small VGG."""
    from torch import nn

    layers: list[Any] = []
    for inputs, width in ((1, 16), (16, 32)):
        layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU()]
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(32 * 49, 64), nn.ReLU(), nn.Linear(64, CLASSES)
    )


def normalized(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> list[Any]:
    """A convolution and its BatchNormalization."""
    from torch import nn

    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


def inverted_residual(inputs: int, outputs: int, stride: int) -> Any:
    """A block of MobileNetV2; its input is added where it has the shape of the output."""
    from torch import nn

    wide = WIDEN * inputs

    class Block(nn.Module):  # type: ignore[misc]  # torch is not typed here
        """x ↦ narrow(depthwise(wide(x))) [+ x]."""

        def __init__(self) -> None:
            super().__init__()
            self.inside = nn.Sequential(
                *normalized(inputs, wide, 1), nn.ReLU6(),
                *normalized(wide, wide, 3, stride, wide), nn.ReLU6(),
                *normalized(wide, outputs, 1),
            )  # fmt: skip

        def forward(self, x: Any) -> Any:
            y = self.inside(x)
            return y + x if inputs == outputs and stride == 1 else y

    return Block()


def mobilenetv2() -> Any:
    """A small MobileNetV2."""
    from torch import nn

    layers = [*normalized(1, 16, 3, 2), nn.ReLU6()]
    width = 16
    for outputs, stride in BLOCKS:
        layers.append(inverted_residual(width, outputs, stride))
        width = outputs
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, CLASSES)]
    return nn.Sequential(*layers, *normalized(width, 96, 1), nn.ReLU6(), *head)


TASKS = {
    task.name: task
    for task in (ConvTask("vgg", vgg, 2), ConvTask("mobilenetv2", mobilenetv2, 2))
}  # fmt: skip


def trained_file(task: ConvTask, folder: Path, fashion: Path) -> Path:
    """The exported network, trained now if it is missing."""
    path = folder / f"{task.name}.onnx"
    if not path.exists():
        rows = fashion_rows(fashion)
        images = [x.reshape(-1, 1, 28, 28) for x in (rows.x_train, rows.x_test, rows.x_val)]
        rows = replace(rows, x_train=images[0], x_test=images[1], x_val=images[2])
        seeded(0)
        folder.mkdir(parents=True, exist_ok=True)
        export_network(fitted(task.untrained(), rows, task), rows.x_train[:2], path)
    return path
