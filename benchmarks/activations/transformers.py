"""Two small vision transformers for FashionMNIST, in torch.

An image is a sequence of square patches. Each block adds attention and a feed-forward layer
(GELU, four times as wide) to its input, both after LayerNorm; the head reads the mean of the
sequence. The exported network takes sequences of any length up to the number of patches of a
whole image, because it has a position for each of those.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.common.datasets import Rows
from benchmarks.common.torch_training import fitted, seeded
from onnxfde.numbers import Array

SIDE = 28
"""Pixels in a row of an image."""
CLASSES = 10
ROWS = 4000
"""Images whose patches are rows for the feed-forward layer alone; chosen."""


@dataclass(frozen=True)
class TransformerTask:
    """A transformer: patch size in pixels, width, heads and blocks, and how it is trained."""

    name: str
    patch: int
    width: int
    heads: int
    blocks: int
    images: int
    epochs: int
    batch: int
    rate: float
    seed: int = 0

    @property
    def patches(self) -> int:
        """The length of the sequence of a whole image."""
        return (SIDE // self.patch) ** 2


VIT = TransformerTask("vit", 4, 64, 4, 4, images=60_000, epochs=8, batch=128, rate=1e-3)
WIDE = TransformerTask("wide", 7, 768, 12, 1, images=20_000, epochs=2, batch=64, rate=3e-4)
"""BERT's width, heads and feed-forward layer in one block; two epochs on a third of the images."""


def patches(x: Array, size: int) -> Array:
    """Rows of 784 pixels as sequences of patches: (images, patches, pixels of a patch)."""
    count = SIDE // size
    grid = x.reshape(-1, count, size, count, size).transpose(0, 1, 3, 2, 4)
    return np.ascontiguousarray(grid.reshape(len(x), count * count, size * size))


def transformer(task: TransformerTask) -> Any:
    """The network of a task with torch's random weights."""
    import torch

    nn, width, heads = torch.nn, task.width, task.heads

    class Attention(nn.Module):  # type: ignore[misc, name-defined]  # torch is not typed here
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in "qkvo")

        def forward(self, x: Any) -> Any:
            q, k, v = (
                f(x).unflatten(-1, (heads, width // heads)).transpose(1, 2)
                for f in (self.query, self.key, self.value)
            )
            score = (q @ k.transpose(2, 3) * (width // heads) ** -0.5).softmax(-1)
            return self.out((score @ v).transpose(1, 2).flatten(2))

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention = Attention()
            self.feed_forward = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.norm1(x))
            return x + self.feed_forward(self.norm2(x))

    class Transformer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(task.patch**2, width)
            self.position = nn.Parameter(0.02 * torch.randn(task.patches, width))
            self.blocks = nn.ModuleList(Block() for _ in range(task.blocks))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

        def forward(self, x: Any) -> Any:
            x = self.embed(x) + self.position[: x.shape[1]]
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x.mean(1)))

    return Transformer()


def train(task: TransformerTask, rows: Rows) -> Any:
    """Adam with a cosine schedule on the first images."""
    seeded(task.seed)
    x, y = rows.x_train[: task.images], rows.y_train[: task.images]
    return fitted(transformer(task), replace(rows, x_train=x, y_train=y), task)


def feed_forward_rows(net: Any, rows: Rows) -> tuple[Any, Rows]:
    """The first feed-forward layer, and what flows into it at one patch of each image.

    There are no targets: what the layer should compute is what it computed.
    """
    x_train, x_test = (flowing(net.blocks[0], net, x[:ROWS]) for x in (rows.x_train, rows.x_test))
    none = np.empty((0, net.blocks[0].feed_forward[2].out_features), np.float32)
    return net.blocks[0].feed_forward, Rows(x_train, none, x_test, none, x_train[:0], none)


def flowing(block: Any, net: Any, x: Array) -> Array:
    """What flows into a block's feed-forward layer, at a random patch of each image."""
    import torch

    seen: list[Any] = []
    hook = block.feed_forward.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with torch.no_grad():
        for part in torch.from_numpy(x).split(100):
            net(part)
    hook.remove()
    chosen = np.random.default_rng(0).integers(0, x.shape[1], len(x))
    return np.ascontiguousarray(torch.cat(seen).numpy()[np.arange(len(x)), chosen])
