"""What a sweep is asked for: which models, with which data, at which sizes."""

from __future__ import annotations

import glob
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from onnxfde.errors import OnnxfdeError, UsageError
from onnxfde.limits import Limit, check_limit
from onnxfde.options import Options
from onnxfde.sweeping.parcels import Parcel
from onnxfde.sweeping.points import PointTask
from onnxfde.sweeping.results_folder import CSV_FILE, INDEX_FILE, RECORDS

SizeKind = Literal["params", "macs", "bytes"]
RESERVED_NAMES = ("", ".", "..", RECORDS, CSV_FILE, INDEX_FILE)
"""Names that no folder of results may have: they stand for something else."""
NAME_IN_PATH = "{name}"
"""Stands for the name of a model, without its suffix, in the path of its data."""


@dataclass(frozen=True)
class Rung:
    """One size."""

    text: str
    """As the user writes it."""
    limit: Limit

    @property
    def stem(self) -> str:
        """How files of this size are called.

        >>> Rung("50%", 0.5).stem, Rung("12.3456789%", 0.123456789).stem, Rung("1000", 1000).stem
        ('50-percent', '12.3456789-percent', 'at-most-1000')
        """
        if isinstance(self.limit, int):
            return f"at-most-{self.limit}"
        return f"{100 * self.limit:.12g}-percent"


@dataclass(frozen=True)
class SweptModel:
    """A model, the folder of its results, and its data."""

    name: str
    """Of the folder; no other model has it."""
    path: Path
    data: Path | None


@dataclass(frozen=True)
class SizeLadder:
    """What is asked for."""

    models: tuple[SweptModel, ...]
    rungs: tuple[Rung, ...]
    kind: SizeKind = "params"
    options: Options = field(default_factory=Options)
    """What all points have in common, without data and size."""
    words: tuple[str, ...] = ()
    """The same options as a user types them."""

    def tasks_of(self, model: SweptModel) -> list[PointTask]:
        """All points of a model; OnnxfdeError if its files cannot be read."""
        parcel = Parcel.of_model(model.path)
        data = Parcel.of_data(model.data) if model.data else None
        hashes = parcel.sha256(), data.sha256() if data else None
        return [self.task(model, rung, parcel, data).with_key(*hashes) for rung in self.rungs]

    def task(self, model: SweptModel, rung: Rung, parcel: Parcel, data: Parcel | None) -> PointTask:
        """One point."""
        size: dict[str, Any] = {f"max_{self.kind}": rung.limit}
        words = ["onnxfde", "optimize", str(model.path), f"{model.name}-{rung.stem}.onnx"]
        words += [f"--max-{self.kind}", rung.text, *(["--data", str(model.data)] * bool(data))]
        return PointTask(
            model_name=model.name,
            size=rung.text,
            stem=rung.stem,
            model=parcel,
            data=data,
            options=replace(self.options, **size),
            command=shlex.join([*words, *self.words]),
        )


def rungs_of(sizes: Sequence[tuple[str, Limit]]) -> tuple[Rung, ...]:
    """Sizes as they were given; each only once."""
    for text, limit in sizes:
        check_limit("sizes", limit)
        if isinstance(limit, int) and text.endswith("%"):
            raise UsageError(f"--sizes {text} is neither a number nor a share")
    found = [Rung(text, limit) for text, limit in sizes]
    return tuple({rung.stem: rung for rung in found}.values())


def expanded(given: Sequence[Path]) -> Iterator[Path]:
    """The files that names, folders and globs stand for, in order, each only once."""
    seen: set[str] = set()
    for path in given:
        text = str(path)
        found = [path]
        if os.path.isdir(path):
            found = sorted(path.glob("*.onnx"))
            if not found:
                raise UsageError(f"{path}: no .onnx file in this folder")
        elif glob.has_magic(text) and not os.path.lexists(path):
            found = sorted(map(Path, glob.glob(text, recursive=True)))
            if not found:
                raise UsageError(f"{path}: no file has such a name")
        for file in found:
            if os.path.realpath(file) not in seen:
                seen.add(os.path.realpath(file))
                yield file


def swept_models(given: Sequence[Path], data: Path | None) -> tuple[SweptModel, ...]:
    """The models of a sweep, each with a name of its own and its data."""
    if data is not None and "{" in str(data) and NAME_IN_PATH not in str(data):
        raise UsageError(f"--data {data}: write {NAME_IN_PATH} where the model's name stands")
    models: dict[str, SweptModel] = {}
    for file in expanded(given):
        first = "model" if file.stem.lower() in RESERVED_NAMES else file.stem
        name, number = first, 1
        while name.lower() in models:
            number += 1
            name = f"{first}-{number}"
        own = None if data is None else Path(str(data).replace(NAME_IN_PATH, file.stem))
        models[name.lower()] = SweptModel(name, file, own)
    return tuple(models.values())


def why_unread(ladder: SizeLadder, model: SweptModel) -> list[PointTask] | str:
    """The points of a model, or why its files cannot be read."""
    try:
        return ladder.tasks_of(model)
    except OnnxfdeError as error:
        return str(error)
