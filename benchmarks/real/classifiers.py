"""Small classifiers: ResNets on CIFAR-10, LeNet-300-100 on FashionMNIST, a person detector.

Of CIFAR-10's shared images the first 1,000 are to fit to, others to judge on. No picture here has
labels for the person detector: it is judged by how often it says what the original says, about
squares cut out of other photographs than those to fit to.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.common.datasets import Rows
from benchmarks.common.dense_networks import DenseTask, trained_network
from benchmarks.common.fashion import fashion_rows
from benchmarks.common.folders import shared_file
from benchmarks.common.torch_training import export_network
from benchmarks.real.judging import Recorded
from benchmarks.real.scores import class_score, first_outputs
from benchmarks.real.subject import Material, Run, Score, Subject
from onnxfde.numbers import Array

FIT = 1000
"""Images to fit to."""
PHOTOGRAPHS, CUT, SIDE = 40, (15, 50), 96
"""Photographs to fit to; squares that are cut out of each, to fit to and to judge on."""
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of the channels that ResNet20 was trained with."""
LENET = DenseTask("lenet-300-100", "fashion", (300, 100), "relu", 16, 128, 1e-3)
"""As in benchmarks/activations."""
BATCH = 50


def cifar() -> tuple[Array, Array]:
    """The shared part of CIFAR-10: bytes (N, 3, 32, 32), and classes."""
    with np.load(shared_file("data/cifar10_dev.npz")) as rows:
        return rows["x"], rows["y"].astype(np.int64)


def parted(x: Array, y: Array) -> Rows:
    """The first images are to fit to, the others to judge on."""
    return Rows(x[:FIT], y[:FIT], x[FIT:], y[FIT:], x[:0], y[:0])


def resnet20_rows() -> Rows:
    """CIFAR-10 as ResNet20 takes it."""
    x, y = cifar()
    mean, std = (np.asarray(v, np.float32).reshape(-1, 1, 1) for v in IMAGENET)
    return parted((x.astype(np.float32) / np.float32(255) - mean) / std, y)


def resnet8_rows() -> Rows:
    """CIFAR-10 as ResNet8 takes it."""
    x, y = cifar()
    return parted(x.astype(np.float32), y)


def lenet_rows() -> Rows:
    """FashionMNIST's own split, with fewer images to fit to."""
    rows = fashion_rows()
    return Rows(rows.x_train[:FIT], rows.y_train[:FIT], rows.x_test, rows.y_test,
                rows.x_val, rows.y_val)  # fmt: skip


def prepared(
    folder: Path, write_model: Callable[[Path], None], rows: Callable[[], Rows]
) -> Material:
    """The model, and its rows with and without labels."""
    model, data, labelled, judged = (
        folder / name for name in ("original.onnx", "fit.npz", "labelled.npz", "judge.npz")
    )
    if not judged.exists():
        write_model(model)
        name, known = Recorded(model).session.get_inputs()[0].name, rows()
        write_named(data, {name: known.x_train})
        write_named(labelled, {name: known.x_train, "y": known.y_train})
        write_named(judged, {name: known.x_test, "y": known.y_test})
    return Material(model, data, labelled=labelled)


def write_named(path: Path, arrays: dict[str, Array]) -> None:
    """Write arrays by name."""
    np.savez(path, allow_pickle=False, **arrays)


def shared_model(name: str) -> Callable[[Path], None]:
    """Copies a model of the shared folder."""
    return lambda target: copied(shared_file(f"models/{name}.onnx"), target)


def copied(source: Path, target: Path) -> None:
    """Copy a file."""
    shutil.copyfile(source, target)


def write_lenet(target: Path) -> None:
    """Train LeNet-300-100 and export it."""
    rows = fashion_rows()
    export_network(trained_network(LENET, rows), rows.x_train[:2], target)


def squares(paths: list[Path], count: int) -> Array:
    """So many squares of each photograph, as the person detector takes them."""
    from PIL import Image

    rng, found = np.random.default_rng(len(paths)), []
    for path in paths:
        with Image.open(path) as opened:
            picture = opened.convert("RGB")
        for _ in range(count):
            side = int(min(picture.size) * rng.uniform(0.4, 1))
            left, top = (int(rng.integers(length - side + 1)) for length in picture.size)
            cut = picture.resize((SIDE, SIDE), box=(left, top, left + side, top + side))
            found.append(np.asarray(cut, np.float32).transpose(2, 0, 1) / np.float32(255))
    return np.stack(found)


def prepare_detector(folder: Path) -> Material:
    """The person detector, and what it says itself of the squares to judge on."""
    model, data, judged = folder / "original.onnx", folder / "fit.npz", folder / "judge.npz"
    if not judged.exists():
        copied(shared_file("models/vww_mobilenet.onnx"), model)
        run, paths = Recorded(model), sorted(shared_file("data/coco60").glob("*.jpg"))
        name = run.session.get_inputs()[0].name
        write_named(data, {name: squares(paths[:PHOTOGRAPHS], CUT[0])})
        other = squares(paths[PHOTOGRAPHS:], CUT[1])
        said = np.concatenate([*first_outputs(run, name, other, BATCH)]).argmax(axis=1)
        write_named(judged, {name: other, "y": said})
    return Material(model, data)


def score(folder: Path, run: Run) -> Score:
    """Images that get the right class."""
    with np.load(folder / "judge.npz") as judged:
        (name,) = set(judged.files) - {"y"}
        outputs = np.concatenate([*first_outputs(run, name, judged[name], BATCH)])
        return class_score(outputs, judged["y"])


def classifier(
    name: str,
    about: str,
    kind: str,
    others: int,
    write_model: Callable[[Path], None],
    rows: Callable[[], Rows],
) -> Subject:
    """A classifier with labels."""
    return Subject(name, about, "accuracy", f"{FIT} images of {kind}", f"{others} others",
                   lambda folder: prepared(folder, write_model, rows), score, BATCH)  # fmt: skip


SUBJECTS = (
    classifier("resnet20", "ResNet20 (shared folder)", "CIFAR-10", 4000,
               shared_model("resnet20_cifar10"), resnet20_rows),
    classifier("resnet8", "ResNet8 of MLPerf Tiny (shared folder)", "CIFAR-10", 4000,
               shared_model("resnet8_cifar10"), resnet8_rows),
    classifier("lenet-300-100", "784-300-100-10 with ReLU, trained here", "FashionMNIST", 10_000,
               write_lenet, lenet_rows),
    Subject(
        "person-detector",
        "MobileNetV1-0.25 of MLPerf Tiny (shared folder)",
        "same class as the original",
        f"{PHOTOGRAPHS * CUT[0]} squares of {PHOTOGRAPHS} photographs of COCO",
        f"{20 * CUT[1]} squares of 20 others",
        prepare_detector,
        score,
        BATCH,
    ),
)  # fmt: skip
