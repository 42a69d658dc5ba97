"""The page of results."""

from __future__ import annotations
from pathlib import Path
from benchmarks.common.found_cells import Found


def write_page(found: Found, path: Path) -> None:
    """Write the page."""
