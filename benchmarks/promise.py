"""Are ε and the printed error true? Both beside the error on unseen inputs.

`python -m benchmarks.promise` (extra `paper`, and the shared folder for MNIST) merges trained
networks with training rows as data, and measures the saved files on test rows in onnxruntime. The
printed error is that of rows which `optimize` keeps for the verdict.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import onnxfde
from benchmarks.common import table
from benchmarks.common.square_networks import Trained, trained
from onnxfde.options import Quotient

STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
"""The ε to ask for; chosen."""
QUOTIENTS: tuple[Quotient, ...] = ("minimal", "refit")
ROWS = {"gly": (100, 1000, 5000), "digits": (320, 1000), "mnist": (4000,)}
"""Training rows to merge with: at least five times as many as inputs; chosen."""
SMALLEST_ERROR = 1e-3
"""Errors below this are left out of the summary: rounding has a part in them."""
TITLES = {"gly": "GLY 7-120-7", "digits": "digits 64-256-10", "mnist": "MNIST 784-256-10"}
HEADER = (
    "network | quotient | rows | ε | neurons | GRP % | printed error | on unseen inputs"
    " | unseen / printed | unseen / ε | test"
)


def measured(
    title: str, net: Trained, quotient: Quotient, count: int
) -> Iterator[tuple[tuple[object, ...], float, float]]:
    """One row per ε, with the printed error and the one on unseen inputs."""
    rows = net.rows
    for eps in STEPS:
        result = onnxfde.optimize(
            net.path, eps, quotient=quotient, data={"x": rows.x_train[:count]}, certify=False
        )
        with tempfile.TemporaryDirectory() as folder:
            result.save(Path(folder) / "small.onnx")
            found = onnxfde.verify(
                net.path, Path(folder) / "small.onnx", data={"x": rows.x_test, "y": rows.y_test}
            )
        (layer,), shown = result.report.layers, result.report.verification
        if shown is None or not shown.relative_l2 or found.relative_l2 is None:
            continue
        cells = (
            title,
            quotient,
            f"{count:,}",
            eps,
            f"{layer.neurons_before} → {layer.neurons_after}",
            f"{result.report.grp_percent:.1f}",
            f"{shown.relative_l2:.4f}",
            f"{found.relative_l2:.4f}",
            f"{found.relative_l2 / shown.relative_l2:.2f}",
            f"{found.relative_l2 / eps:.2f}",
            f"{found.metric} {found.metric_before:.4g} → {found.metric_after:.4g}",
        )
        yield cells, shown.relative_l2, found.relative_l2


def main() -> None:
    """Every network with every quotient and every number of rows."""
    lines, ratios = [], []
    for name, title in TITLES.items():
        net = trained(name)
        for quotient in QUOTIENTS:
            for count in ROWS[name]:
                for cells, shown, unseen in measured(title, net, quotient, count):
                    lines.append(cells)
                    ratios += [unseen / shown] if unseen > SMALLEST_ERROR else []
    summary = (
        f"unseen / printed over {len(ratios)} rows with an error above {SMALLEST_ERROR:g}: "
        f"median {median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}"
    )
    sections = [table.Section("", HEADER, lines)]
    table.write_sections(
        __file__, "Errors promised and printed, on unseen inputs", sections, summary
    )


if __name__ == "__main__":
    main()
