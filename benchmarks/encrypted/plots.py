"""Plots."""

from __future__ import annotations
from pathlib import Path
from benchmarks.common.found_cells import Found


def plot(found: Found, path: Path) -> None:
    """Draw."""
