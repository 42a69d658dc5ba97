"""Make the demo files of the package: `python -m benchmarks.make_demo` (extra `paper`)."""

from __future__ import annotations

import numpy as np
import onnx

from benchmarks.nets import trained
from onnxfde.demo import demo_data, demo_model

ROWS = 300
PATHS = "pkg.torch.onnx.stack_trace"


def main() -> None:
    """Train the glycolytic network and copy it with its first test rows.

    What torch says of the machine it was exported on stays behind.
    """
    net = trained("gly")
    model = onnx.load(net.path)
    for node in model.graph.node:
        kept = [entry for entry in node.metadata_props if entry.key != PATHS]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    onnx.save(model, demo_model())
    np.savez_compressed(demo_data(), x=net.rows.x_test[:ROWS], y=net.rows.y_test[:ROWS])


if __name__ == "__main__":
    main()
