"""The networks of the paper's evaluation, trained once and kept as ONNX with their rows.

Variant 1 is d-120-m. Variants 2 and 3 have two and four blocks: d-120-d-…-120-m. The layers of 120
neurons are square, the others linear. A file is named after a hash of everything that made it, and
gets its name only when it is complete: a killed run leaves no broken file behind.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.common.datasets import Rows
from benchmarks.common.folders import CACHE
from benchmarks.common.paper_systems import DYNAMICS, SYSTEMS, TABLES
from benchmarks.common.paper_training import Recipe, recipe_of, train
from benchmarks.common.square_networks import Trained, export

BLOCKS = {1: 1, 2: 2, 3: 4}
"""Square layers of each variant: the paper's."""
HIDDEN = 120
"""Neurons of each square layer: the paper's for simulated systems, assumed for public tables."""


@dataclass(frozen=True)
class Made:
    """Everything that determines a network."""

    system: str
    data: str
    note: str
    widths: tuple[int, ...]
    recipe: Recipe
    seed: int


def silent(text: str) -> None:
    """Discard a message."""


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
    """Whether a network has been trained already."""
    return cached_path(system, variant, seed, data_dir).exists()


def cached_path(system: str, variant: int, seed: int, data_dir: Path | None = None) -> Path:
    """Where a network is kept."""
    made = json.dumps(asdict(made_of(system, variant, seed, data_dir)), sort_keys=True)
    key = hashlib.sha256(made.encode()).hexdigest()[:12]
    return CACHE / "paper" / f"{system.lower()}-v{variant}-s{seed}-{key}.onnx"


def made_of(system: str, variant: int, seed: int, data_dir: Path | None = None) -> Made:
    """Everything that determines a network; a public table counts by its content."""
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
    """Where the rows come from: the range of the states, or the hash of the table."""
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
