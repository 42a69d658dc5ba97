"""Eight networks, each with rows that onnxfde is given and other rows to measure on.

The demo network is given the 600 rows that are bundled with it, and measured on the rows that it
was trained on; the others are given rows of the training part, and measured on the test part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.common import paper_networks
from benchmarks.common.cryptonets_square import cryptonets_images, cryptonets_path
from benchmarks.common.datasets import digits_rows, mnist_rows
from benchmarks.common.dense_networks import DenseTask, trained_network
from benchmarks.common.fashion import INSTALLED, fashion_rows
from benchmarks.common.folders import CACHE, shared_file
from benchmarks.common.square_networks import Task, deep_square
from benchmarks.common.torch_training import export_network
from onnxfde.demo import demo_data, demo_model
from onnxfde.numbers import Array

GIVEN = 4000
"""Rows that onnxfde is given at most; chosen."""
MANY = 8000
"""Images that it is given of MNIST where points of accuracy count, of which few rows decide."""
IMAGES = 1000
"""Images that it is given of CIFAR-10: all that are not for measuring."""
TESTED_IMAGES = 1000
"""Images of CIFAR-10 to measure on; chosen, because dozens of networks are."""
DEMO_TRAINED = 1197
"""Rows that the demo network was trained on."""
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of the channels that ResNet20 was trained with."""
LENET = DenseTask("lenet-300-100", "fashion", (300, 100), "relu", 16, 128, 1e-3)
"""As in benchmarks/activations."""
DEEP_SQUARE = Task("mnist-two", mnist_rows, hidden=128, epochs=8, batch=128, rate=0.001)


@dataclass(frozen=True, eq=False)
class Subject:
    """A network, rows as onnxfde is given them, and rows to measure on as the network takes them.

    `y` are labels, or targets.
    """

    name: str
    model: Path
    x: Array
    y: Array
    x_test: Array
    y_test: Array
    words: tuple[str, ...] = ()
    """How rows become inputs, as options of the command line."""


def demo() -> Subject:
    """The bundled ReLU network."""
    with np.load(demo_data("digits")) as rows:
        x, y = rows["x"], rows["y"]
    known = digits_rows(0, train=DEMO_TRAINED)
    return Subject("demo", demo_model("digits"), x, y, known.x_train, known.y_train)


def cryptonets() -> Subject:
    """The network for homomorphic encryption."""
    rows = mnist_rows()
    known, test = map(cryptonets_images, (rows.x_train[:MANY], rows.x_test))
    name, path = "cryptonets_square", cryptonets_path()
    return Subject(name, path, known, rows.y_train[:MANY], test, rows.y_test)


def of_paper(name: str, system: str, variant: int) -> Subject:
    """A network of the paper's evaluation; rows for validation are measured on too."""
    made = paper_networks.trained(system, variant, 0)
    rows = made.rows
    x, y = rows.x_train[:GIVEN], rows.y_train[:GIVEN]
    x_test, y_test = (np.concatenate(p) for p in ((rows.x_val, rows.x_test),
                                                  (rows.y_val, rows.y_test)))  # fmt: skip
    return Subject(name, made.path, x, y, x_test, y_test)


def mnist_square() -> Subject:
    """784-128-64-10 with squares."""
    rows = mnist_rows()
    path = deep_square(DEEP_SQUARE, rows, CACHE)
    x, y = rows.x_train[:GIVEN], rows.y_train[:GIVEN]
    return Subject("mnist-square-2", path, x, y, rows.x_test, rows.y_test)


def lenet() -> Subject:
    """LeNet-300-100 with ReLU."""
    rows, path = fashion_rows(INSTALLED), CACHE / f"{LENET.name}.onnx"
    if not path.exists():
        export_network(trained_network(LENET, rows), rows.x_train[:2], path)
    x, y = rows.x_train[:GIVEN], rows.y_train[:GIVEN]
    return Subject(LENET.name, path, x, y, rows.x_test, rows.y_test)


def resnet(name: str, scale: float, mean: tuple[float, ...], std: tuple[float, ...]) -> Subject:
    """A convolutional network, and how it takes images of bytes."""
    with np.load(shared_file("data/cifar10_dev.npz")) as rows:
        x, y = rows["x"], rows["y"].astype(np.int64)
    tested = slice(IMAGES, IMAGES + TESTED_IMAGES)
    shift, spread = (np.asarray(v, np.float32).reshape(-1, 1, 1) for v in (mean, std))
    fed = (x[tested].astype(np.float32) * np.float32(scale) - shift) / spread
    per_channel = (f"{word}={':'.join(map(str, v))}" for word, v in (("mean", mean), ("std", std)))
    words = "--preprocess", ",".join(["scale=1/255" if scale < 1 else "scale=1", *per_channel])
    model = shared_file(f"models/{name}.onnx")
    return Subject(name, model, x[:IMAGES], y[:IMAGES], fed, y[tested], words)


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "demo": demo,
    "cryptonets_square": cryptonets,
    "abalone": lambda: of_paper("abalone", "Abalone", 1),
    "gly-3": lambda: of_paper("gly-3", "GLY", 3),
    "mnist-square-2": mnist_square,
    "lenet-300-100": lenet,
    "resnet20_cifar10": lambda: resnet("resnet20_cifar10", 1 / 255, *IMAGENET),
    "resnet8_cifar10": lambda: resnet("resnet8_cifar10", 1.0, (0.0,), (1.0,)),
}
"""How each network is found, or trained if it is missing."""


@cache
def subject(name: str) -> Subject:
    """A network by name."""
    return SUBJECTS[name]()
