"""The words of RESULTS.md; every figure in them is computed or comes from the paper."""

from __future__ import annotations

from benchmarks.paper.tables import Cells

HEAD = """# The paper's evaluation, reproduced

Made by `python -m benchmarks.paper`."""
TEXT = ""
BASE = ""
PRUNING = ""


def summary(cells: Cells) -> str:
    """Where ε-FDE lands."""
    return ""
