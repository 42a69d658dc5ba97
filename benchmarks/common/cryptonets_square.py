"""`cryptonets_square.onnx`, a real network for homomorphic encryption, and its MNIST images.

Conv → x² → Gemm 400-128 → x² → Gemm 128-10 with a fixed batch of 1, in the shared folder.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.common.datasets import mnist_rows
from benchmarks.common.folders import shared_file
from onnxfde.numbers import Array

INPUT = "input"
"""The name of the network's input."""
SIDE = 32
"""Pixels on each side of the images that the network reads; MNIST has 28."""


def cryptonets_path() -> Path:
    """The file of the network."""
    return shared_file("models/cryptonets_square.onnx")


def cryptonets_images(rows: Array) -> Array:
    """MNIST rows as the network's authors feed them: resized, rounded to 8 bits, over 255."""
    images = rows.reshape(-1, 28, 28).astype(np.float64) * 255
    weights = bilinear(28, SIDE)
    resized = np.round(weights @ images @ weights.T) / 255
    return np.asarray(resized[:, None].astype(np.float32))


def bilinear(before: int, after: int) -> Array:
    """The matrix that resizes one axis, linear between the centres of pixels (corners not aligned).

    >>> bilinear(2, 4)
    array([[1.  , 0.  ],
           [0.75, 0.25],
           [0.25, 0.75],
           [0.  , 1.  ]])
    """
    centre = np.clip((np.arange(after) + 0.5) * before / after - 0.5, 0, before - 1)
    return np.asarray(np.maximum(0, 1 - np.abs(centre[:, None] - np.arange(before))))


def cryptonets_known(count: int) -> dict[str, Array]:
    """The first training images, unlabelled."""
    return {INPUT: cryptonets_images(mnist_rows().x_train[:count])}


def cryptonets_test() -> dict[str, Array]:
    """The 10,000 test images with their labels."""
    rows = mnist_rows()
    return {INPUT: cryptonets_images(rows.x_test), "y": rows.y_test}
