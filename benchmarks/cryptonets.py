"""How much accuracy does ε cost a real network for homomorphic encryption?

`python -m benchmarks.cryptonets` (needs the shared folder) merges the four channels of the
convolution and the 128 neurons of the Gemm layer of `cryptonets_square.onnx` with 4,000 unlabelled
MNIST training images and measures the accuracy on the 10,000 test images.
"""

from __future__ import annotations

import onnxfde
from benchmarks.common import table
from benchmarks.common.cryptonets_square import cryptonets_known, cryptonets_path, cryptonets_test
from benchmarks.common.datasets import MNIST_KNOWN

STEPS = (0.0, 0.01, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3)
"""The ε to try; chosen from no change to a clear loss of accuracy."""


def main() -> None:
    """One row per ε."""
    path, test = cryptonets_path(), cryptonets_test()
    calibration = cryptonets_known(MNIST_KNOWN)
    lines = []
    for eps in STEPS:
        result = onnxfde.optimize(path, eps, quotient="refit", data=calibration, verify=False)
        found = onnxfde.verify(path, result.model, data=test)
        channels, neurons = result.report.layers
        lines.append(
            (
                eps,
                *(f"{n.neurons_before} → {n.neurons_after}" for n in (channels, neurons)),
                f"{result.report.grp_percent:.1f}",
                "n/a" if found.relative_l2 is None else f"{found.relative_l2:.4f}",
                f"{found.metric_before:.2%} → {found.metric_after:.2%}",
            )
        )
    header = "ε | channels | neurons | GRP % | relative error on test images | test accuracy"
    table.write(__file__, "cryptonets_square: accuracy against ε, quotient refit", header, lines)


if __name__ == "__main__":
    main()
