"""Does ε hold? The relative error on unseen inputs against the ε that was asked for.

`python -m benchmarks.promise` (extra `paper`, and the shared folder for MNIST) merges trained
networks with training rows as data, and measures the saved files on test rows in onnxruntime.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import onnxfde
from benchmarks.common import table
from benchmarks.common.square_networks import Trained, trained
from onnxfde.options import Quotient

STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
"""The ε to ask for; chosen."""
QUOTIENTS: tuple[Quotient, ...] = ("minimal", "refit")
DATA_ROWS = 5000
"""Training rows to merge with; chosen."""
TITLES = {"gly": "GLY 7-120-7", "digits": "digits 64-256-10", "mnist": "MNIST 784-256-10"}
HEADER = (
    "network | quotient | ε | neurons | GRP % | measured | on unseen inputs | unseen / ε | test"
)


def measured(name: str, net: Trained, quotient: Quotient) -> Iterator[tuple[object, ...]]:
    """One row per ε."""
    rows = net.rows
    for eps in STEPS:
        data = {"x": rows.x_train[:DATA_ROWS]}
        result = onnxfde.optimize(net.path, eps, quotient=quotient, data=data, verify=False)
        with tempfile.TemporaryDirectory() as folder:
            result.save(Path(folder) / "small.onnx")
            found = onnxfde.verify(
                net.path, Path(folder) / "small.onnx", data={"x": rows.x_test, "y": rows.y_test}
            )
        (layer,) = result.report.layers
        assert found.relative_l2 is not None
        yield (
            name,
            quotient,
            eps,
            f"{layer.neurons_before} → {layer.neurons_after}",
            f"{result.report.grp_percent:.1f}",
            f"{layer.measured_error:.4f}",
            f"{found.relative_l2:.4f}",
            f"{found.relative_l2 / eps:.2f}",
            f"{found.metric} {found.metric_before:.4g} → {found.metric_after:.4g}",
        )


def main() -> None:
    """Every network with every quotient."""
    rows = [
        row
        for name, title in TITLES.items()
        for quotient in QUOTIENTS
        for row in measured(title, trained(name), quotient)
    ]
    table.write(__file__, "The error promised by ε, on unseen inputs", HEADER, rows)


if __name__ == "__main__":
    main()
