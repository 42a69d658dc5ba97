"""Results in a CSV file, each written as soon as it is known.

A result names its network by the hash of the file: once a network is trained again, its old results
no longer count. A line that a killed run left unfinished is dropped, and measured again.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path


@dataclass(frozen=True)
class Result:
    """The outcome of a method on a network at a configuration."""

    system: str
    variant: int
    seed: int
    network: str
    """Start of the SHA-256 of the network's file."""
    method: str
    config: str
    neurons: str
    """Of each wide layer, separated by slashes."""
    grp: float
    mse: float

    @property
    def key(self) -> tuple[object, ...]:
        """The fields by which a result is looked up."""
        return (self.system, self.variant, self.seed, self.network, self.method, self.config)


FIELDS = tuple(field.name for field in fields(Result))


def network_hash(path: Path) -> str:
    """The name of a network in the results."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def parsed(line: str) -> Result | None:
    """A line of the file, or None if it is broken."""
    words = next(csv.reader([line]), [])
    if len(words) != len(FIELDS):
        return None
    system, variant, seed, network, method, config, neurons, grp, mse = words
    try:
        return Result(
            system,
            int(variant),
            int(seed),
            network,
            method,
            config,
            neurons,
            float(grp),
            float(mse),
        )
    except ValueError:
        return None


class Store:
    """The results so far; a new one is on disk when `add` returns."""

    def __init__(self, path: Path) -> None:
        """Read what is there."""
        self.path = path
        text = path.read_text() if path.exists() else ""
        whole, _, torn = text.rpartition("\n")
        if torn:
            path.write_text(whole + "\n" if whole else "")
        found = (parsed(line) for line in whole.splitlines()[1:])
        self.results = {result.key: result for result in found if result}

    def __contains__(self, key: tuple[object, ...]) -> bool:
        """Whether there is a result with this key."""
        return key in self.results

    def add(self, result: Result) -> None:
        """Append a result."""
        fresh = not self.path.exists() or not self.path.stat().st_size
        with self.path.open("a", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if fresh:
                writer.writerow(FIELDS)
            writer.writerow(astuple(result))
        self.results[result.key] = result

    def current(self) -> Iterator[Result]:
        """The results of the network that was measured last, for each system, variant and seed."""
        latest = {(r.system, r.variant, r.seed): r.network for r in self.results.values()}
        for result in self.results.values():
            if latest[result.system, result.variant, result.seed] == result.network:
                yield result
