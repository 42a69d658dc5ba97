"""Results of the cells of a benchmark's tables, kept in a JSON file; none is run twice."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

Result = dict[str, Any]
"""What was found for a cell, by name."""


class Keyed(Protocol):
    """A cell."""

    @property
    def key(self) -> str:
        """Its name in the file of results."""


@dataclass
class Found:
    """The results so far."""

    path: Path
    results: dict[str, Result] = field(default_factory=dict)

    @staticmethod
    def opened(path: Path) -> Found:
        """Those of a file, which need not exist."""
        return Found(path, json.loads(path.read_text()) if path.exists() else {})

    def get(self, cell: Keyed) -> Result | None:
        """The result of a cell, None if it is missing."""
        return self.results.get(cell.key)

    def add(self, cell: Keyed, result: Result) -> None:
        """Keep a result."""
        self.results[cell.key] = result
        self.write()

    def forget(self, cells: Iterable[Keyed]) -> None:
        """Drop results, so that their cells run again."""
        for cell in cells:
            self.results.pop(cell.key, None)
        self.write()

    def write(self) -> None:
        """Write the file at once, so that a stopped run loses nothing."""
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.results, indent=0, sort_keys=True, ensure_ascii=False))
        part.replace(self.path)
