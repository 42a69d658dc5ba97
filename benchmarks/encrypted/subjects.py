"""The networks: made of affine maps and polynomials, with unlabelled rows to fit to and test rows.

| name | network | activation |
| --- | --- | --- |
| gly | 7-120-7, glycolysis | x² |
| abalone | 10-120-1 | x² |
| digits | 64-256-10, 1,200 training and 597 test rows | x² |
| cryptonets dense | 400-128-10: `cryptonets_square` behind its first squares | x² |
| mlp | 64-64-32-10, two layers as in LeNet-300-100, the same digits | x² + x |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.common import square_networks
from benchmarks.common.cryptonets_square import cryptonets_images, cryptonets_path
from benchmarks.common.datasets import MNIST_KNOWN, digits_rows, mnist_rows
from benchmarks.common.square_networks import Task, Trained
from benchmarks.common.torch_training import export_network, fitted, seeded
from onnxfde.numbers import Array

DIGITS_TRAINING = 1200
"""Leaves 597 rows to test on."""
FROM_SQUARES = 400
"""Values of cryptonets_square behind its first squares."""
MOST_TEST_ROWS = 4096
"""Test rows that are encrypted: the slots of one ciphertext with 8,192 coefficients."""
MLP = Task("mlp", digits_rows, hidden=64, epochs=60, batch=64, rate=0.002)


@dataclass(frozen=True, eq=False)
class EncryptedSubject:
    """A network, unlabelled rows to fit to, and rows to test on."""

    name: str
    model: Path
    known: Array
    x: Array
    y: Array

    @property
    def classes(self) -> bool:
        """Whether it tells classes apart."""
        return self.y.ndim == 1


def of_task(name: str, found: Trained) -> EncryptedSubject:
    """A network that was trained on rows."""
    rows, most = found.rows, MOST_TEST_ROWS
    known = rows.x_train[:MNIST_KNOWN]
    return EncryptedSubject(name, found.path, known, rows.x_test[:most], rows.y_test[:most])


def digits(folder: Path) -> EncryptedSubject:
    """Digits with enough rows left to test on."""
    rows = digits_rows(0, DIGITS_TRAINING)
    path = folder / "digits.onnx"
    if not path.exists():
        square_networks.export(square_networks.train(square_networks.TASKS["digits"], rows, 0),
                               rows, path)  # fmt: skip
    return of_task("digits", Trained(path, rows))


def cryptonets_dense(folder: Path) -> EncryptedSubject:
    """The part of cryptonets_square behind its first squares, with its inputs."""
    path, rows = folder / "cryptonets-dense.onnx", mnist_rows()
    whole = onnx.load(cryptonets_path())
    flat = next(n for n in whole.graph.node if n.op_type in ("Flatten", "Reshape"))
    if not path.exists():
        onnx.save(behind(whole, flat.output[0]), path)
    known, x = (
        values_at(whole, flat.output[0], images)
        for images in (rows.x_train[:MNIST_KNOWN], rows.x_test[:MOST_TEST_ROWS])
    )
    return EncryptedSubject("cryptonets dense", path, known, x, rows.y_test[:MOST_TEST_ROWS])


def behind(whole: onnx.ModelProto, value: str) -> onnx.ModelProto:
    """The part of a chain of nodes behind a value, for any batch size."""
    names = [node.output[0] for node in whole.graph.node]
    nodes = list(whole.graph.node)[names.index(value) + 1 :]
    used = {name for node in nodes for name in node.input}
    batch = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", width])
        for name, width in ((value, FROM_SQUARES), (whole.graph.output[0].name, 10))
    ]
    weights = [tensor for tensor in whole.graph.initializer if tensor.name in used]
    graph = onnx.helper.make_graph(nodes, "dense", batch[:1], batch[1:], weights)
    return onnx.helper.make_model(
        graph, opset_imports=whole.opset_import, ir_version=whole.ir_version
    )


def values_at(whole: onnx.ModelProto, value: str, images: Array) -> Array:
    """What a value of the network is for MNIST images; its batch is fixed at 1."""
    found = onnx.ModelProto()
    found.CopyFrom(whole)
    del found.graph.output[:]
    found.graph.output.append(
        onnx.helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, [1, FROM_SQUARES])
    )
    from onnxruntime import InferenceSession

    session = InferenceSession(found.SerializeToString(), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    rows = (session.run(None, {name: x[None]})[0] for x in cryptonets_images(images))
    return np.concatenate(list(rows))


def mlp(folder: Path) -> EncryptedSubject:
    """A network with x² + x, trained here."""
    rows, path = digits_rows(0, DIGITS_TRAINING), folder / "mlp.onnx"
    if not path.exists():
        seeded(0)
        export_network(fitted(mlp_network(), rows, MLP), rows.x_train[:2], path)
    return of_task("mlp", Trained(path, rows))


def mlp_network() -> Any:
    """64-64-32-10 with x² + x."""
    import torch

    class Polynomial(torch.nn.Module):  # type: ignore[misc]  # torch is not typed here
        def forward(self, x: Any) -> Any:
            return x * x + x

    linear = torch.nn.Linear
    return torch.nn.Sequential(
        linear(64, 64), Polynomial(), linear(64, 32), Polynomial(), linear(32, 10)
    )


SUBJECTS: dict[str, Callable[[Path], EncryptedSubject]] = {
    "gly": lambda _: of_task("gly", square_networks.trained("gly")),
    "abalone": lambda _: of_task("abalone", square_networks.trained("abalone")),
    "digits": digits,
    "mlp": mlp,
    "cryptonets dense": cryptonets_dense,
}
"""Small ones first."""
