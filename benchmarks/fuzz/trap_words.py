"""Helpers of the traps: command lines from text, and the files of a model."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from onnx import ModelProto

from benchmarks.fuzz.bases import Base
from benchmarks.fuzz.command_lines import Words

ROWS = {"x": np.random.default_rng(0).uniform(-1, 1, (120, 3)).astype(np.float32)}
"""Data for the square networks of the traps."""


def words(line: str, code: int | None = None) -> Words:
    """A command line with what it writes; `code` is the exit code that must come."""
    argv = tuple(line.split(" "))
    writes = argv[0] == "optimize" and len(argv) > 2 and "--dry-run" not in argv
    json = next((word for option, word in pairwise(argv) if option == "--json"), None)
    return Words(argv, argv[2] if writes else None, None if json == "-" else json, code)


def model_files(model: ModelProto | bytes | Base) -> dict[str, bytes]:
    """The files of a trap: the model, the same as `base.onnx`, and data for it."""
    if isinstance(model, bytes):
        return {"in.onnx": model, "base.onnx": model}
    base = model if isinstance(model, Base) else Base("", model, {}, ROWS)
    raw = base.model.SerializeToString()
    return {**base.files, "in.onnx": raw, "base.onnx": raw, "rows.npz": base.data}
