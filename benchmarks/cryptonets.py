"""A real network for homomorphic encryption: accuracy against ε.

`python -m benchmarks.cryptonets` (needs the shared folder): `cryptonets_square.onnx`, Conv → x² →
Gemm 400-128 → x² → Gemm 128-10, fixed batch 1; its Gemm layer merged with 4,000 unlabelled MNIST
training images, accuracy on the 10,000 test images.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import onnxfde
from benchmarks import table
from benchmarks.tasks import mnist_rows, shared_file

STEPS = (0.0, 0.01, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3)
TRAIN_IMAGES = 4000


def images(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """28×28 rows as 32×32 images with a border of 2."""
    return np.pad(rows.reshape(-1, 1, 28, 28), ((0, 0), (0, 0), (2, 2), (2, 2)))


def main() -> None:
    """One row a step."""
    rows = mnist_rows()
    path = shared_file("models/cryptonets_square.onnx")
    calibration = {"input": images(rows.x_train[:TRAIN_IMAGES])}
    test = {"input": images(rows.x_test), "y": rows.y_test}
    lines = []
    for eps in STEPS:
        result = onnxfde.optimize(path, eps, quotient="refit", data=calibration, verify=False)
        found = onnxfde.verify(path, result.model, data=test)
        (layer,) = result.report.layers
        lines.append(
            (
                eps,
                f"{layer.neurons_before} → {layer.neurons_after}",
                f"{result.report.grp_percent:.1f}",
                "n/a" if found.relative_l2 is None else f"{found.relative_l2:.4f}",
                f"{found.metric_before:.2%} → {found.metric_after:.2%}",
            )
        )
    header = "ε | neurons of Gemm_3 | GRP % | relative error on test images | test accuracy"
    table.write(__file__, "cryptonets_square: accuracy against ε", header, lines)


if __name__ == "__main__":
    main()
