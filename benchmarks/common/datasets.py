"""The data of the benchmarks: training, validation and test rows, deterministic for a seed.

Simulated systems: uniform random states and their exact derivatives, min-max scaled. Public tables
come from the shared folder (its `data/README.md` names the sources): inputs standardised, targets
min-max scaled, and split 70/20/10 into training, validation and test. Only training rows determine
the scaling. Integer targets are class labels.
"""

from __future__ import annotations

import csv
import gzip
import io
import lzma
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.common.dynamics import binding, glycolysis
from benchmarks.common.folders import shared_file
from onnxfde.numbers import Array

STATES = 30_000
"""Rows of a simulated system: the paper's number."""
BOX = (0.0, 100.0)
"""Range of every state of the glycolytic oscillator and the reaction network: the paper's."""
DIGITS_TRAIN = 1437
"""Training rows of the digits: 80 % of 1,797."""
MNIST_KNOWN = 4000
"""Unlabelled MNIST images that merging with data may see; chosen."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of one task; without validation rows, `x_val` and `y_val` are empty."""

    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array
    x_val: Array
    y_val: Array

    @property
    def classes(self) -> bool:
        """Whether the targets are labels."""
        return bool(self.y_train.dtype == np.int64)

    @property
    def outputs(self) -> int:
        """Columns of targets, or the number of classes."""
        return int(self.y_train.max()) + 1 if self.classes else int(self.y_train.shape[1])

    @property
    def limits(self) -> tuple[float, float]:
        """The range of the training inputs, all columns together."""
        return float(self.x_train.min()), float(self.x_train.max())


def parted(x: Array, y: Array, train: int, valid: int = 0) -> Rows:
    """The first rows are for training, the next for validation, the rest for testing."""
    end = train + valid
    return Rows(x[:train], y[:train], x[end:], y[end:], x[train:end], y[train:end])


def min_max(a: Array, reference: Array) -> Array:
    """Scale columns so that those of `reference` fill [0, 1]."""
    low, high = reference.min(axis=0), reference.max(axis=0)
    return np.asarray((a - low) / (high - low))


def standardised(a: Array, reference: Array) -> Array:
    """Shift and scale columns so that those of `reference` have mean 0 and variance 1."""
    return np.asarray((a - reference.mean(axis=0)) / reference.std(axis=0))


def simulated(
    slope: Callable[[Array], Array],
    species: int,
    between: tuple[float, float],
    seed: int,
    parts: tuple[int, int] = (STATES * 9 // 10, 0),
) -> Rows:
    """Uniform states in a box and their derivatives.

    `parts` are the numbers of training and validation rows; the rest is for testing.
    """
    states = np.random.default_rng(seed).uniform(*between, (STATES, species))
    targets, train = slope(states), parts[0]
    x = min_max(states, states[:train]).astype(np.float32)
    y = min_max(targets, targets[:train]).astype(np.float32)
    return parted(x, y, *parts)


def gly_rows(seed: int) -> Rows:
    """The glycolytic oscillator in [0, 100]⁷."""
    return simulated(glycolysis, 7, BOX, seed)


def rn_rows(seed: int) -> Rows:
    """The reaction network in [0, 100]⁶; its derivatives are quadratic: a network can be exact."""
    return simulated(binding, 6, BOX, seed)


def read_text(path: Path) -> str:
    """The text of a file, decompressed if its name ends in .xz."""
    raw = path.read_bytes()
    return (lzma.decompress(raw) if path.suffix == ".xz" else raw).decode()


def read_table(path: Path) -> list[list[str]]:
    """The lines of a comma-separated file, empty ones left out."""
    return [line for line in csv.reader(io.StringIO(read_text(path))) if line]


def tabular(x: Array, y: Array, seed: int, numbers: int | None = None) -> Rows:
    """Shuffle, split 70/20/10 and scale; input columns after the first `numbers` are not scaled."""
    order = np.random.default_rng(seed).permutation(len(x))
    x, y, train = x[order], y[order], len(x) * 7 // 10
    numeric, other = x[:, :numbers], x[:, x.shape[1] if numbers is None else numbers :]
    x = np.hstack([standardised(numeric, numeric[:train]), other]).astype(np.float32)
    y = min_max(y, y[:train]).astype(np.float32)
    return parted(x, y, train, len(x) // 5)


def abalone_table(path: Path) -> tuple[Array, Array]:
    """Abalone: sex as three columns, and seven measures; the target is the number of rings."""
    lines = read_table(path)
    sex = [[float(line[0] == kind) for kind in "MFI"] for line in lines]
    numbers = np.array([line[1:] for line in lines], dtype=np.float64)
    return np.hstack([sex, numbers[:, :-1]]), numbers[:, -1:]


def abalone_rows(seed: int) -> Rows:
    """The rows of Abalone."""
    return tabular(*abalone_table(shared_file("data/abalone.data.xz")), seed)


def protein_table(path: Path) -> tuple[Array, Array]:
    """Protein tertiary structure (CASP): nine measures; the target is the RMSD."""
    numbers = np.array(read_table(path)[1:], dtype=np.float64)
    return numbers[:, 1:], numbers[:, :1]


def protein_rows(seed: int) -> Rows:
    """The rows of Protein."""
    return tabular(*protein_table(shared_file("data/CASP.csv.xz")), seed)


def digits_rows(seed: int, train: int = DIGITS_TRAIN) -> Rows:
    """scikit-learn's 1,797 8×8 digits in [0, 1]: some for training, the rest for testing."""
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(seed).permutation(len(data.target))
    x = (data.data[order] / 16).astype(np.float32)
    return parted(x, data.target[order].astype(np.int64), train)


def read_idx(path: Path) -> Array:
    """An IDX file of unsigned bytes, as MNIST is distributed."""
    with gzip.open(path) as stream:
        raw = stream.read()
    rank = raw[3]
    shape = np.frombuffer(raw, ">i4", rank, 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(shape)


def mnist_part(part: str) -> tuple[Array, Array]:
    """Images as rows of 784 values in [0, 1], and labels."""
    images, labels = (
        read_idx(shared_file(f"data/mnist-{part}-{kind}-ubyte.gz"))
        for kind in ("images-idx3", "labels-idx1")
    )
    x = (images.reshape(len(images), -1) / 255).astype(np.float32)
    return x, labels.astype(np.int64)


def mnist_rows(seed: int = 0) -> Rows:
    """MNIST's 60,000 training and 10,000 test images: its own split, whatever the seed."""
    del seed
    (x_train, y_train), (x_test, y_test) = mnist_part("train"), mnist_part("t10k")
    return Rows(x_train, y_train, x_test, y_test, x_train[:0], y_train[:0])
