"""The data of the benchmarks: training, validation and test rows, deterministic for a seed.

Simulated systems are uniform states and their exact derivatives, both min-max scaled, 90/10. Public
tables come from the shared folder (its `data/README.md` names the sources): inputs standardised,
targets min-max scaled, both with the training rows alone, and split 70/20/10 into training,
validation and test. Classes are integer targets.
"""

from __future__ import annotations

import csv
import gzip
import io
import lzma
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SHARED = Path(__file__).parents[2] / "shared"
STATES = 30_000
DIGITS_TRAIN = 1437


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of one task; integer targets are class labels, no validation is an empty one."""

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
    """The first rows train, the next ones validate, the others test."""
    end = train + valid
    return Rows(x[:train], y[:train], x[end:], y[end:], x[train:end], y[train:end])


def min_max(a: Array, reference: Array) -> Array:
    """Scale columns so that those of `reference` fill [0, 1]."""
    low, high = reference.min(axis=0), reference.max(axis=0)
    return np.asarray((a - low) / (high - low))


def standardised(a: Array, reference: Array) -> Array:
    """Shift and scale columns so that those of `reference` have mean 0 and variance 1."""
    return np.asarray((a - reference.mean(axis=0)) / reference.std(axis=0))


def glycolysis(s: Array) -> Array:
    """Right-hand side of the 7-species glycolytic oscillator."""
    j0, k1, k2, k3, k4, k5, k6 = 2.5, 100.0, 6.0, 16.0, 100.0, 1.28, 12.0
    k, kappa, q, cap, psi, n, a = 1.8, 13.0, 4, 0.52, 0.1, 1.0, 4.0
    s1, s2, s3, s4, s5, s6, s7 = s.T
    v = k1 * s1 * s6 / (1 + (s6 / cap) ** q)
    return np.stack(
        [
            j0 - v,
            2 * v - k2 * s2 * (n - s5) - k6 * s2 * s5,
            k2 * s2 * (n - s5) - k3 * s3 * (a - s6),
            k3 * s3 * (a - s6) - k4 * s4 * s5 - kappa * (s4 - s7),
            k2 * s2 * (n - s5) - k4 * s4 * s5 - k6 * s2 * s5,
            -2 * v + 2 * k3 * s3 * (a - s6) - k5 * s6,
            psi * kappa * (s4 - s7) - k * s7,
        ],
        axis=1,
    )


def binding(s: Array) -> Array:
    """Right-hand side of the 6-species reaction network: reversible binding at two sites."""
    a, b, c, d, e, f = s.T
    r1, r2 = a * e - 2 * b, a * e - 2 * c
    r3, r4 = b * e - 2 * d, c * e - 2 * d
    r5 = 0.5 * d * e - 0.3 * f
    return np.stack([-r1 - r2, r1 - r3, r2 - r4, r3 + r4 - r5, -r1 - r2 - r3 - r4 - r5, r5], axis=1)


def simulated(
    slope: Callable[[Array], Array],
    species: int,
    between: tuple[float, float],
    seed: int,
    parts: tuple[int, int] = (STATES * 9 // 10, 0),
) -> Rows:
    """Uniform states in a box and their derivatives; `parts` train and validate, the rest tests."""
    states = np.random.default_rng(seed).uniform(*between, (STATES, species))
    targets, train = slope(states), parts[0]
    x = min_max(states, states[:train]).astype(np.float32)
    y = min_max(targets, targets[:train]).astype(np.float32)
    return parted(x, y, *parts)


def gly_rows(seed: int) -> Rows:
    """The glycolytic oscillator in [0, 100]⁷."""
    return simulated(glycolysis, 7, (0.0, 100.0), seed)


def rn_rows(seed: int) -> Rows:
    """The reaction network in [0, 100]⁶: its derivatives are quadratic, a net can be exact."""
    return simulated(binding, 6, (0.0, 100.0), seed)


def shared_file(name: str) -> Path:
    """A file of the shared folder."""
    path = SHARED / name
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is missing: this benchmark needs the shared folder beside the checkout"
        )
    return path


def read_text(path: Path) -> str:
    """The text of a file, xz-compressed if its name ends so."""
    raw = path.read_bytes()
    return (lzma.decompress(raw) if path.suffix == ".xz" else raw).decode()


def read_table(path: Path) -> list[list[str]]:
    """The lines of a table of comma-separated values."""
    return [line for line in csv.reader(io.StringIO(read_text(path))) if line]


def tabular(x: Array, y: Array, seed: int, numbers: int | None = None) -> Rows:
    """Shuffle, split 70/20/10 and scale; columns after the first `numbers` stay as they are."""
    order = np.random.default_rng(seed).permutation(len(x))
    x, y, train = x[order], y[order], len(x) * 7 // 10
    numeric, other = x[:, :numbers], x[:, x.shape[1] if numbers is None else numbers :]
    x = np.hstack([standardised(numeric, numeric[:train]), other]).astype(np.float32)
    y = min_max(y, y[:train]).astype(np.float32)
    return parted(x, y, train, len(x) // 5)


def abalone_table(path: Path) -> tuple[Array, Array]:
    """Abalone: sex as three columns and seven measures; the rings are the target."""
    lines = read_table(path)
    sex = [[float(line[0] == kind) for kind in "MFI"] for line in lines]
    numbers = np.array([line[1:] for line in lines], dtype=np.float64)
    return np.hstack([sex, numbers[:, :-1]]), numbers[:, -1:]


def abalone_rows(seed: int) -> Rows:
    """The rows of Abalone."""
    return tabular(*abalone_table(shared_file("data/abalone.data.xz")), seed)


def protein_table(path: Path) -> tuple[Array, Array]:
    """Protein tertiary structure (CASP): nine measures; the RMSD is the target."""
    numbers = np.array(read_table(path)[1:], dtype=np.float64)
    return numbers[:, 1:], numbers[:, :1]


def protein_rows(seed: int) -> Rows:
    """The rows of Protein."""
    return tabular(*protein_table(shared_file("data/CASP.csv.xz")), seed)


def digits_rows(seed: int) -> Rows:
    """scikit-learn's 1,797 8×8 digits in [0, 1], 80/20."""
    from sklearn.datasets import load_digits

    data = load_digits()
    order = np.random.default_rng(seed).permutation(len(data.target))
    x = (data.data[order] / 16).astype(np.float32)
    return parted(x, data.target[order].astype(np.int64), DIGITS_TRAIN)


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
    """MNIST's 60,000 + 10,000 images; the split is MNIST's own, whatever the seed."""
    del seed
    (x_train, y_train), (x_test, y_test) = mnist_part("train"), mnist_part("t10k")
    return Rows(x_train, y_train, x_test, y_test, x_train[:0], y_train[:0])
