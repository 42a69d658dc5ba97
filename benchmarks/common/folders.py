"""Where the benchmarks find their data and keep their networks."""

from __future__ import annotations

from pathlib import Path

BENCHMARKS = Path(__file__).parents[1]
SHARED = BENCHMARKS.parents[1] / "shared"
"""Data and models that are not in the repository, in a folder beside the checkout."""
CACHE = BENCHMARKS / ".cache"
"""Networks that were trained or merged once; git ignores this folder."""


def shared_file(name: str) -> Path:
    """A file of the shared folder."""
    path = SHARED / name
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is missing: this benchmark needs the shared folder beside the checkout"
        )
    return path
