"""The networks as files, with images to fit to and other images to measure on.

CIFAR-10: images 0–999 of the shared file are for fitting, without their labels, 1000–4999 for
measuring. FashionMNIST: the first 1,000 training images, and the test images. The person detector
has no labelled images here; its outputs are compared on enlarged CIFAR-10 images and on noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.channels.trained import TASKS, trained_file
from benchmarks.common.datasets import read_idx
from benchmarks.common.fashion import INSTALLED, require_fashion
from benchmarks.common.folders import CACHE, shared_file
from onnxfde.numbers import Array

POOL = 1000
"""Images to fit to are drawn from so many."""
ENLARGED = 200
"""Enlarged images, and as many of noise, on which the person detector is compared; chosen."""
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of the channels that the CIFAR ResNet was trained with."""

Images = tuple[Array, Array, Array]
"""Bytes to fit to, bytes to measure on, and the labels of these."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A network, and how images of bytes (N, C, H, W) become its inputs."""

    name: str
    model: Path
    images: Callable[[], Images]
    scale: float = 1 / 255
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    channels_last: bool = False

    @property
    def words(self) -> list[str]:
        """The same as an option of the command line."""
        parts = ["scale=1/255" if self.scale < 1 else "scale=1"]
        if self.std != (1.0,):
            parts += [f"{name}={':'.join(map(str, values))}"
                      for name, values in (("mean", self.mean), ("std", self.std))]  # fmt: skip
        return ["--preprocess", ",".join([*parts, *(["layout=nchw"] * self.channels_last)])]

    def feed(self, images: Array) -> Array:
        """Images as the network takes them."""
        mean, std = (np.asarray(v, np.float32).reshape(-1, 1, 1) for v in (self.mean, self.std))
        x = (images.astype(np.float32) * np.float32(self.scale) - mean) / std
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1) if self.channels_last else x)

    def drawn(self, count: int, draw: int) -> Array:
        """Images to fit to: so many of the pool, another choice for each draw."""
        chosen = np.random.default_rng(draw).permutation(POOL)[:count]
        return self.images()[0][chosen]

    def test(self) -> tuple[Array, Array]:
        """Inputs to measure on, and labels; none for the person detector."""
        _, images, labels = self.images()
        return self.feed(images), labels


@cache
def cifar_images() -> Images:
    """The shared part of CIFAR-10."""
    with np.load(shared_file("data/cifar10_dev.npz")) as rows:
        x, y = rows["x"], rows["y"]
    return x[:POOL], x[POOL:], y[POOL:].astype(np.int64)


@cache
def fashion_images(folder: Path = INSTALLED) -> Images:
    """FashionMNIST as images of one channel."""
    require_fashion(folder)
    train, test = (read_idx(folder / f"{part}-images-idx3-ubyte.gz") for part in ("train", "t10k"))
    labels = read_idx(folder / "t10k-labels-idx1-ubyte.gz").astype(np.int64)
    return train[:POOL, None], test[:, None], labels


@cache
def enlarged_images() -> Images:
    """CIFAR-10 images three times as large, and noise; without labels."""
    pool, images, _ = cifar_images()
    large = images[:ENLARGED].repeat(3, axis=2).repeat(3, axis=3)
    noise = np.random.default_rng(0).integers(0, 256, large.shape).astype(np.uint8)
    return pool, np.concatenate([large, noise]), np.zeros(0, np.int64)


RESNET20 = ("resnet20_cifar10", "resnet20_cifar10_ts")
RESNET8 = ("resnet8_cifar10", "resnet8_cifar10_bn", "resnet8_cifar10_tf2onnx")
DETECTOR = ("vww_mobilenet", "vww_mobilenet_bn", "vww_mobilenet_tf2onnx")


@cache
def subject(name: str, nets: Path = CACHE / "channels", fashion: Path = INSTALLED) -> Subject:
    """A network by name; those of FashionMNIST are trained now if their file is missing."""
    if name in TASKS:
        model = trained_file(TASKS[name], nets, fashion)
        return Subject(name, model, lambda: fashion_images(fashion))
    model, last = shared_file(f"models/{name}.onnx"), name.endswith("tf2onnx")
    if name in RESNET20:
        mean, std = IMAGENET
        return Subject(name, model, cifar_images, mean=mean, std=std)
    if name in RESNET8:
        return Subject(name, model, cifar_images, scale=1.0, channels_last=last)
    return Subject(name, model, enlarged_images, channels_last=last)
