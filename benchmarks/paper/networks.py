"""The networks of the paper's evaluation, trained once and kept as ONNX with their rows.

Variant 1 is d-120-m; variants 2 and 3 repeat 120-d, two and four times in all. The layers of 120
are square, the others linear. A file is named by a hash of all that made it, and appears under its
name only when it is whole: a killed run leaves nothing broken.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.nets import Trained, export
from benchmarks.paper.systems import DYNAMICS, SYSTEMS, TABLES
from benchmarks.paper.training import Recipe, recipe_of, train
from benchmarks.tasks import Rows

CACHE = Path(__file__).parents[1] / ".cache" / "paper"
BLOCKS = {1: 1, 2: 2, 3: 4}
HIDDEN = 120


@dataclass(frozen=True)
class Made:
    """All that makes a network."""

    system: str
    data: str
    note: str
    widths: tuple[int, ...]
    recipe: Recipe
    seed: int


def silent(text: str) -> None:
    """Tell nobody."""


def trained(
    system: str,
    variant: int,
    seed: int,
    data_dir: Path | None = None,
    tell: Callable[[str], None] = silent,
) -> Trained:
    """A network and its rows, from the cache or trained now."""
    path = cached_path(system, variant, seed, data_dir)
    if path.exists():
        return Trained(path, load_rows(path.with_suffix(".npz")))
    made = made_of(system, variant, seed, data_dir)
    rows = SYSTEMS[system].rows(seed, data_dir)
    net = train(made.widths, rows, made.recipe, seed, tell)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.part")
    save_rows(rows, partial)
    partial.replace(path.with_suffix(".npz"))
    export(net, rows, partial)
    partial.replace(path)
    return Trained(path, rows)


def is_cached(system: str, variant: int, seed: int, data_dir: Path | None = None) -> bool:
    """Whether a network needs no training any more."""
    return cached_path(system, variant, seed, data_dir).exists()


def cached_path(system: str, variant: int, seed: int, data_dir: Path | None = None) -> Path:
    """Where a network is kept."""
    made = json.dumps(asdict(made_of(system, variant, seed, data_dir)), sort_keys=True)
    key = hashlib.sha256(made.encode()).hexdigest()[:12]
    return CACHE / f"{system.lower()}-v{variant}-s{seed}-{key}.onnx"


def made_of(system: str, variant: int, seed: int, data_dir: Path | None = None) -> Made:
    """All that makes a network; the data of a public table counts by its content."""
    it = SYSTEMS[system]
    if it.public and variant != 1:
        raise ValueError(f"{system} has variant 1 only: the paper's public tables have no other")
    return Made(
        system,
        source(system, data_dir),
        it.note,
        widths(it.inputs, it.outputs, variant),
        recipe_of(system, variant),
        seed,
    )


def source(system: str, data_dir: Path | None = None) -> str:
    """What the rows are made of: the box of the states, or the hash of the table."""
    if not SYSTEMS[system].public:
        return str(DYNAMICS[system].box)
    return hashlib.sha256(TABLES[system].path(data_dir).read_bytes()).hexdigest()


def widths(inputs: int, outputs: int, variant: int) -> tuple[int, ...]:
    """The widths of all layers, from the inputs to the outputs."""
    return inputs, *((HIDDEN, inputs) * (BLOCKS[variant] - 1)), HIDDEN, outputs


def save_rows(rows: Rows, path: Path) -> None:
    """Write rows as npz."""
    with path.open("wb") as stream:
        np.savez(stream, **vars(rows))


def load_rows(path: Path) -> Rows:
    """Read rows again."""
    with np.load(path) as stored:
        return Rows(**stored)
