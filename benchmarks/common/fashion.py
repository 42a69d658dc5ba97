"""FashionMNIST: 60,000 training and 10,000 test images of clothes, as rows in [0, 1].

Debian's package `dataset-fashion-mnist` (Zalando Research, MIT licence) has the four IDX files.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.common.datasets import Rows, read_idx
from onnxfde.numbers import Array

INSTALLED = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package puts the files."""


def require_fashion(folder: Path) -> None:
    """Raise FileNotFoundError unless a folder holds FashionMNIST."""
    if not (folder / "train-images-idx3-ubyte.gz").exists():
        raise FileNotFoundError(
            f"{folder} has no FashionMNIST: `apt install dataset-fashion-mnist` puts it into "
            f"{INSTALLED}, and --fashion names another folder with its four files"
        )


def fashion_part(folder: Path, part: str) -> tuple[Array, Array]:
    """Images as rows of 784 values in [0, 1], and labels."""
    images, labels = (
        read_idx(folder / f"{part}-{kind}-ubyte.gz") for kind in ("images-idx3", "labels-idx1")
    )
    x = (images.reshape(len(images), -1) / 255).astype(np.float32)
    return x, labels.astype(np.int64)


@cache
def fashion_rows(folder: Path = INSTALLED) -> Rows:
    """FashionMNIST's own split."""
    require_fashion(folder)
    (x_train, y_train), (x_test, y_test) = (fashion_part(folder, p) for p in ("train", "t10k"))
    return Rows(x_train, y_train, x_test, y_test, x_train[:0], y_train[:0])
