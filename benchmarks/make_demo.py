"""Make the demo files of the package: `python -m benchmarks.make_demo` (extra `paper`)."""

from __future__ import annotations

import shutil

import numpy as np

from benchmarks.nets import trained
from onnxfde.demo import demo_data, demo_model

ROWS = 300


def main() -> None:
    """Train the glycolytic network and copy it with its first test rows."""
    net = trained("gly")
    shutil.copyfile(net.path, demo_model())
    np.savez_compressed(demo_data(), x=net.rows.x_test[:ROWS], y=net.rows.y_test[:ROWS])


if __name__ == "__main__":
    main()
