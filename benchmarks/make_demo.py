"""Makes the demo files of the package: `python -m benchmarks.make_demo` (extra `paper`)."""

from __future__ import annotations

import numpy as np
import onnx

from benchmarks.common.square_networks import trained
from onnxfde.demo import demo_data, demo_model

ROWS = 300
"""Test rows in the demo data; chosen."""
STACK_TRACE = "pkg.torch.onnx.stack_trace"
"""Where torch writes the paths of the machine that exported the model."""


def main() -> None:
    """Train the glycolytic network, and copy it (without stack traces) with its first test rows."""
    net = trained("gly")
    model = onnx.load(net.path)
    for node in model.graph.node:
        kept = [entry for entry in node.metadata_props if entry.key != STACK_TRACE]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(model, demo_model())
    np.savez_compressed(demo_data(), x=net.rows.x_test[:ROWS], y=net.rows.y_test[:ROWS])


if __name__ == "__main__":
    main()
