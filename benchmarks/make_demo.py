"""Makes the demo files of the package: `python -m benchmarks.make_demo` (extra `paper`)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx

from benchmarks.common.datasets import Rows, digits_rows
from benchmarks.common.dense_networks import DenseTask, trained_network
from benchmarks.common.square_networks import trained
from benchmarks.common.torch_training import export_network
from onnxfde.demo import DemoName, demo_data, demo_model

ROWS = {"digits": 600, "gly": 300}
"""Test rows in the demo data; chosen."""
DIGITS = DenseTask("digits", "digits", (128, 64), "relu", 80, 64, 1e-3, seed=1)
"""The ReLU network; chosen to be small, with two layers to merge."""
STACK_TRACE = "pkg.torch.onnx.stack_trace"
"""Where torch writes the paths of the machine that exported the model."""


def write_demo(name: DemoName, path: Path, rows: Rows) -> None:
    """Copy a network, without stack traces, with its first test rows."""
    model = onnx.load(path)
    for node in model.graph.node:
        kept = [entry for entry in node.metadata_props if entry.key != STACK_TRACE]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(model, demo_model(name))
    count = ROWS[name]
    np.savez_compressed(demo_data(name), x=rows.x_test[:count], y=rows.y_test[:count])


def main() -> None:
    """Train both networks."""
    net = trained("gly")
    write_demo("gly", net.path, net.rows)
    rows = digits_rows(0, train=1797 - ROWS["digits"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.onnx"
        export_network(trained_network(DIGITS, rows), rows.x_train[:2], path)
        write_demo("digits", path, rows)


if __name__ == "__main__":
    main()
