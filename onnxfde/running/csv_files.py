"""Tables as data: a CSV file with a header, one row per sample, one column per number.

A model with one input takes all columns but that of the labels, in the order of the file; a model
with several inputs takes the column of the same name for each. Columns may be separated by commas,
semicolons or tabs. What is no number is refused with its line and column.
"""

from __future__ import annotations

import array
import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from onnxfde.data_use import DataUse
from onnxfde.errors import DataError
from onnxfde.graph.input_specs import InputSpec
from onnxfde.numbers import FloatArray
from onnxfde.running.data_files import StoredArray
from onnxfde.running.data_rows import LABELS
from onnxfde.running.image_inputs import shape_text

TABLE_SUFFIXES = {".csv", ".tsv"}
SEPARATORS = ",;\t"
SHOWN = 20
"""Characters of a value that messages show."""
NAMES_AT_AN_END = 4
"""Columns that messages name at the beginning and at the end of a wide table."""


def is_table(path: Path) -> bool:
    """Whether a file is named like a table."""
    return path.suffix.lower() in TABLE_SUFFIXES


@dataclass(frozen=True, eq=False)
class CsvTable:
    """A table of numbers with names of columns."""

    path: Path
    names: tuple[str, ...]
    values: FloatArray
    """Rows × columns."""

    @classmethod
    def opened(cls, path: Path) -> CsvTable:
        """Read a whole table."""
        try:
            with path.open(newline="", encoding="utf-8-sig") as stream:
                first = stream.readline()
                if not first.strip():
                    raise DataError(f"{path} is empty, or begins with an empty line")
                separator = max(SEPARATORS, key=first.count)
                stream.seek(0)
                rows = csv.reader(stream, delimiter=separator)
                names = tuple(name.strip() for name in next(rows))
                refuse_header(names, path)
                return cls(path, names, numeric_rows(rows, names, path))
        except FileNotFoundError:
            raise DataError(f"{path}: no such file") from None
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
        except UnicodeDecodeError:
            raise DataError(f"{path} is no text in UTF-8") from None
        except csv.Error as error:
            raise DataError(f"{path} cannot be read as a table ({error})") from None

    def arrays(self, specs: tuple[InputSpec, ...], use: DataUse) -> dict[str, StoredArray]:
        """What each input takes, and the labels if a column is said to hold them."""
        taken = any(spec.name == LABELS for spec in specs)
        usual = LABELS if LABELS in self.names and not taken else None
        labels = usual if use.labels is None else use.labels
        if labels is not None and labels not in self.names:
            raise DataError(f"{self.path} has no column '{labels}' for --labels ({self.known})")
        found = dict(self.inputs(specs, use, labels))
        if labels is not None and not taken:
            found[LABELS] = StoredArray.of(self.column(labels))
        return found

    def inputs(
        self, specs: tuple[InputSpec, ...], use: DataUse, labels: str | None
    ) -> Iterator[tuple[str, StoredArray]]:
        """The columns that each input takes."""
        if len(specs) == 1 and not use.inputs:
            chosen = [i for i, name in enumerate(self.names) if name != labels]
            yield specs[0].name, StoredArray.of(self.shaped(specs[0], chosen, labels))
            return
        given = dict(use.inputs)
        for spec in specs:
            name = given.get(spec.name, spec.name)
            if name not in self.names:
                raise DataError(
                    f"{self.path} has no column '{name}' for the model's input ({self.known})"
                )
            yield spec.name, StoredArray.of(self.shaped(spec, [self.names.index(name)], labels))

    def shaped(self, spec: InputSpec, columns: list[int], labels: str | None) -> FloatArray:
        """Some columns in the shape of an input."""
        lengths = spec.dims[1:]
        if any(not isinstance(length, int) for length in lengths):
            lengths = (len(columns),) if len(lengths) == 1 else lengths
        wanted = math.prod(n for n in lengths if isinstance(n, int))
        if wanted != len(columns):
            beside = f" beside the labels '{labels}'" if labels else ""
            hint = "" if labels else ": say which column holds the labels (--labels COLUMN)"
            raise DataError(
                f"{self.path} has {len(columns)} columns{beside}, the model's input "
                f"'{spec.name}' is {shape_text(spec.dims)}{hint if len(columns) > wanted else ''}"
            )
        found = self.values[:, columns]
        return found.reshape(len(found), *(int(n) for n in lengths if isinstance(n, int)))

    def column(self, name: str) -> FloatArray:
        """One column."""
        return np.ascontiguousarray(self.values[:, self.names.index(name)])

    @property
    def known(self) -> str:
        """What columns there are, for messages."""
        left_out = len(self.names) - 2 * NAMES_AT_AN_END
        if left_out <= 1:
            return f"it has {', '.join(self.names)}"
        first, last = self.names[:NAMES_AT_AN_END], self.names[-NAMES_AT_AN_END:]
        return f"it has {', '.join(first)}, … {left_out} more …, {', '.join(last)}"


def refuse_header(names: tuple[str, ...], path: Path) -> None:
    """Raise unless the first line has the names of columns, each once."""
    if all(number_of(name) is not None for name in names):
        raise DataError(f"{path} has no header: its first line holds numbers, not names of columns")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{path} has two columns called '{twice}'")


def numeric_rows(rows: Iterator[list[str]], names: tuple[str, ...], path: Path) -> FloatArray:
    """All rows behind the header."""
    found = array.array("d")
    for line, row in enumerate(rows, start=2):
        if not row:
            continue
        if len(row) != len(names):
            raise DataError(
                f"{path}, line {line}: {len(row)} values, the header has {len(names)} columns"
            )
        for name, text in zip(names, row, strict=True):
            if (value := number_of(text)) is None:
                raise DataError(f"{path}, line {line}: {why_no_number(name, text)}")
            found.append(value)
    if not found:
        raise DataError(f"{path} has a header and no rows")
    return np.frombuffer(found, np.float64).reshape(-1, len(names))


def why_no_number(name: str, text: str) -> str:
    """What is wrong with a value."""
    if text.strip().lower() in ("", "?", "na", "n/a", "nan", "null", "none"):
        return f"column '{name}' has no value: fill in what is missing, or leave such rows out"
    shown = text[:SHOWN] + ("…" if len(text) > SHOWN else "")
    return f"column '{name}' holds '{shown}', not a number: encode it as for the model's training"


def number_of(text: str) -> float | None:
    """A text as a number, None if it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else value
