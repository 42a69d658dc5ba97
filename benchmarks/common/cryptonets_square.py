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
BORDER = 2
"""Zeros around MNIST's 28×28 pixels: the network reads 32×32."""


def cryptonets_path() -> Path:
    """The file of the network."""
    return shared_file("models/cryptonets_square.onnx")


def cryptonets_images(rows: Array) -> Array:
    """MNIST rows as the images that the network reads."""
    sides = (BORDER, BORDER)
    return np.pad(rows.reshape(-1, 1, 28, 28), ((0, 0), (0, 0), sides, sides))


def cryptonets_known(count: int) -> dict[str, Array]:
    """The first training images, unlabelled."""
    return {INPUT: cryptonets_images(mnist_rows().x_train[:count])}


def cryptonets_test() -> dict[str, Array]:
    """The 10,000 test images with their labels."""
    rows = mnist_rows()
    return {INPUT: cryptonets_images(rows.x_test), "y": rows.y_test}
