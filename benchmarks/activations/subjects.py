"""The trained networks as files, with rows to fit to and other rows to test on.

A folder holds `<network>.onnx`, its torch weights `<network>.pt`, and for each kind of data the
first unlabelled training inputs `<data>-fit.npy` and test rows `<data>-test.npz` (`x`, `y`).
What is missing is trained.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.activations import transformers
from benchmarks.activations.dense_tasks import DENSE
from benchmarks.activations.transformers import VIT, WIDE, TransformerTask, patches
from benchmarks.common.datasets import Rows, abalone_rows, digits_rows, mnist_rows
from benchmarks.common.dense_networks import dense_layers, trained_network, untrained
from benchmarks.common.fashion import fashion_rows
from benchmarks.common.scores import score
from benchmarks.common.torch_training import export_network
from onnxfde.numbers import Array

MOST_ROWS = 4000
"""Training inputs that are kept to fit to: the most that any method gets."""
FEED_FORWARD = "wide-ff"
"""The feed-forward layer of the wide transformer alone, with the values that flow into it."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A trained network, and its rows; without targets, `y_test` is empty."""

    name: str
    folder: Path
    data: str
    pairs: tuple[tuple[str, str], ...]
    """torch's names of the linear maps before and after each activation."""
    untrained: Callable[[], Any]

    @property
    def model(self) -> Path:
        """The ONNX file."""
        return self.folder / f"{self.name}.onnx"

    @property
    def weights(self) -> Path:
        """The same weights for torch."""
        return self.folder / f"{self.name}.pt"

    def fit(self, rows: int) -> Array:
        """The first training inputs."""
        return np.asarray(np.load(self.folder / f"{self.data}-fit.npy", mmap_mode="r")[:rows])

    def test(self) -> tuple[Array, Array]:
        """Test inputs and targets."""
        with np.load(self.folder / f"{self.data}-test.npz") as rows:
            return rows["x"], rows["y"]

    def network(self) -> Any:
        """The network in torch."""
        import torch

        net = self.untrained()
        net.load_state_dict(torch.load(self.weights, weights_only=True))
        return net.eval()


def judged(subject: Subject, outputs: Array, original: Array) -> dict[str, float]:
    """Accuracy or mean squared error, and the change relative to how much the outputs vary."""
    _, y = subject.test()
    vary = np.linalg.norm(original - original.mean(axis=0))
    found = {"error": float(np.linalg.norm(outputs - original) / vary)}
    return {**found, "score": score(outputs, y)} if y.size else found


def kept_rows(folder: Path, data: str, rows: Rows) -> None:
    """Write the rows of one kind of data."""
    np.save(folder / f"{data}-fit.npy", rows.x_train[:MOST_ROWS])
    np.savez(folder / f"{data}-test.npz", x=rows.x_test, y=rows.y_test)


@dataclass(frozen=True)
class Suite:
    """All networks of a folder; FashionMNIST is read from `fashion` where it is needed."""

    folder: Path
    fashion: Path

    def rows(self, data: str) -> Rows:
        """The rows that a network is trained on."""
        return all_rows(data, self.fashion)

    def subject(self, name: str) -> Subject:
        """A network by name, trained now if its file is missing."""
        if name in DENSE:
            return self.dense(name)
        return self.feed_forward() if name == FEED_FORWARD else self.transformer(VIT)

    def dense(self, name: str) -> Subject:
        """A dense network."""
        task = DENSE[name]
        maps = range(0, 2 * len(task.hidden), 2)
        pairs = tuple((str(i), str(i + 2)) for i in maps)
        found = Subject(
            name, self.folder, task.data, pairs,
            lambda: untrained(task, self.rows(task.data)),
        )  # fmt: skip
        if not found.model.exists():
            rows = self.rows(task.data)
            self.write(found, trained_network(task, rows), rows)
        return found

    def transformer(self, task: TransformerTask) -> Subject:
        """A transformer on sequences of patches."""
        parts = [f"blocks.{i}.feed_forward" for i in range(task.blocks)]
        pairs = tuple((f"{part}.0", f"{part}.2") for part in parts)
        data = f"patches{task.patch}"
        found = Subject(task.name, self.folder, data, pairs, lambda: transformers.transformer(task))
        if not found.model.exists():
            rows = patched(self.rows("fashion"), task.patch)
            self.write(found, transformers.train(task, rows), rows, ("batch", "sequence"))
        return found

    def feed_forward(self) -> Subject:
        """The feed-forward layer of the wide transformer, with what flows into it."""
        found = Subject(
            FEED_FORWARD, self.folder, FEED_FORWARD, (("0", "2"),),
            lambda: dense_layers((WIDE.width, 4 * WIDE.width, WIDE.width), "gelu"),
        )  # fmt: skip
        if not found.model.exists():
            whole = self.transformer(WIDE)
            layer, rows = transformers.feed_forward_rows(
                whole.network(), patched(self.rows("fashion"), WIDE.patch)
            )
            self.write(found, layer, rows)
        return found

    def write(
        self, subject: Subject, net: Any, rows: Rows, free: tuple[str, ...] = ("batch",)
    ) -> None:
        """Write a trained network and its rows."""
        import torch

        self.folder.mkdir(parents=True, exist_ok=True)
        kept_rows(self.folder, subject.data, rows)
        torch.save(net.state_dict(), subject.weights)
        export_network(net, rows.x_train[:2], subject.model, free)


def patched(rows: Rows, size: int) -> Rows:
    """The same images as sequences of patches."""
    x_train, x_test, x_val = (patches(x, size) for x in (rows.x_train, rows.x_test, rows.x_val))
    return Rows(x_train, rows.y_train, x_test, rows.y_test, x_val, rows.y_val)


@cache
def all_rows(data: str, fashion: Path) -> Rows:
    """The rows of one kind of data."""
    if data == "fashion":
        return fashion_rows(fashion)
    return {"digits": digits_rows, "abalone": abalone_rows, "mnist": mnist_rows}[data](0)
