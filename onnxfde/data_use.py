"""How the data that a user gives becomes inputs of a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxfde.errors import UsageError

DATA_USES = ("preprocess", "inputs", "labels")
"""Options that say how data becomes inputs (`DataUse`)."""


@dataclass(frozen=True)
class DataUse:
    """How the data becomes inputs of a model."""

    preprocess: tuple[str, ...] = ()
    """What is done to its values (`--preprocess`), as the user writes it."""
    inputs: tuple[tuple[str, str], ...] = ()
    """Inputs and the arrays that they take (`--input`), where the names differ."""
    labels: str | None = None
    """The array or column that holds labels or targets (`--labels`); None: `y`."""

    @classmethod
    def given(
        cls,
        preprocess: str | Sequence[str] = (),
        inputs: Mapping[str, str] | None = None,
        labels: str | None = None,
    ) -> DataUse:
        """The same as Python callers write it: a single text, a mapping."""
        if not isinstance(labels, str | None):
            raise UsageError(f"labels {labels!r} is not the name of an array or column")
        return cls(as_texts("--preprocess", preprocess, "texts"), as_names(inputs), labels)

    @property
    def settings(self) -> dict[str, Any]:
        """What is said, for the settings of a run."""
        found = {
            "preprocess": list(self.preprocess),
            "inputs": dict(self.inputs),
            "labels": self.labels,
        }
        return {name: value for name, value in found.items() if value}


def as_texts(shown: str, texts: Any, what: str) -> tuple[str, ...]:
    """One text or several, as a tuple."""
    if isinstance(texts, str):
        return (texts,)
    if not isinstance(texts, Iterable) or not all(isinstance(text, str) for text in texts):
        raise UsageError(f"{shown} {texts!r} is not a list of {what}")
    return tuple(texts)


def as_names(inputs: Any) -> tuple[tuple[str, str], ...]:
    """Names of inputs and of their arrays, in one fixed order."""
    pairs: list[Any] = list(inputs.items()) if isinstance(inputs, Mapping) else []
    known = inputs is None or isinstance(inputs, Mapping)
    if not known or not all(isinstance(name, str) for pair in pairs for name in pair):
        raise UsageError(f"inputs {inputs!r} is not a mapping from inputs to arrays of the data")
    return tuple(sorted(pairs))
