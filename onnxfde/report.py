"""The report of a run, as `--json` writes it; REPORT.md explains its fields (schema 2)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from onnxfde import __version__
from onnxfde.graph.encrypted_cost import EncryptedCost
from onnxfde.graph.match import Refusal
from onnxfde.graph.old_weights import OldWeights
from onnxfde.limits import LOSS_GOALS, GoalKind
from onnxfde.options import Int8
from onnxfde.passes.goal_outcome import GoalOutcome
from onnxfde.passes.result import Fold, LayerChange
from onnxfde.proof.certificate import Certificate
from onnxfde.running.verification import Verification

SCHEMA = 2
"""Grows when a field changes its meaning."""
STAGES = (
    "load", "match", "partition", "quotient", "fold", "certify", "int8", "verify", "save",
)  # fmt: skip
"""Keys of `seconds`, in the order of the work."""

LARGE_CHANGE = 0.1
"""Relative L2 that counts as large where no ε says what is. Chosen: the default of --eps."""
BEYOND_EPS = 1.5
"""How far above the largest ε of a layer the whole model's error may be before it is remarked on:
layers add up, and new rows differ. Chosen; not tuned."""


def large_change(layer_eps: Iterable[float | None], goal: GoalKind | None) -> float:
    """The relative L2 above which outputs changed a lot; none is, if the user set a limit to it.

    >>> large_change([0.5, None], None), large_change([0.5], "error")
    (0.75, inf)
    """
    if goal in LOSS_GOALS:
        return math.inf
    known = [eps for eps in layer_eps if eps]
    return BEYOND_EPS * max(known, default=LARGE_CHANGE)


@dataclass(frozen=True)
class Change:
    """A number before and after."""

    before: int
    after: int


@dataclass(frozen=True)
class EncryptedChange:
    """What a network costs encrypted and in a proof, before and after."""

    before: EncryptedCost
    after: EncryptedCost


@dataclass(frozen=True)
class Quantized:
    """What rounding to 8 bits did."""

    mode: Int8
    weights: int
    """How many weight tensors are stored in 8 bits."""
    bytes: Change
    """Of the model in floating point and in 8 bits."""
    merged: Verification | None
    """The merged model in floating point compared with the original; None if nothing was merged."""
    unmerged: str | None
    """Why nothing was merged, if nothing was."""


@dataclass(frozen=True)
class Report:
    """Everything that a run did."""

    version: str
    settings: dict[str, Any]
    input_sha256: str
    parameters: Change
    bytes: Change
    multiply_adds: Change | None = None
    """Of one sample; None if they cannot be counted."""
    encrypted: EncryptedChange | None = None
    """None if the network is not made of affine maps and polynomials."""
    layers: tuple[LayerChange, ...] = ()
    folded: tuple[Fold, ...] = ()
    refused: tuple[Refusal, ...] = ()
    verification: Verification | None = None
    certificate: Certificate | None = None
    goal: GoalOutcome | None = None
    """What was asked for of the whole model, if anything was."""
    int8: Quantized | None = None
    assumed: str | None = None
    """What was assumed about the inputs, if there is no data."""
    seconds: dict[str, float] = field(default_factory=dict)
    output_sha256: str | None = None
    weight_files: tuple[str, ...] = ()
    """Files beside the output that were written with it and hold external weights."""
    old_weights: tuple[OldWeights, ...] = ()
    """Data files of the model that was replaced, as far as they stay."""
    onnx_bytes: int | None = None
    """What the model takes as .onnx, if it was written as .ort."""
    unchanged: str | None = None
    """Why the output is the input (perhaps in another format), if it is."""

    def stored_in(self, size: int, digest: str) -> Report:
        """The same with the bytes and the hash of the files that were written as .onnx."""
        int8 = self.int8 and replace(self.int8, bytes=Change(self.int8.bytes.before, size))
        total = Change(self.bytes.before, size)
        return replace(self, bytes=total, int8=int8, output_sha256=digest)

    @property
    def changed(self) -> bool:
        """Whether anything was merged, or rounded to 8 bits."""
        return self.unchanged is None

    @property
    def grp_percent(self) -> float:
        """Remaining parameters in percent of those of the original."""
        before, after = self.parameters.before, self.parameters.after
        return 100 * after / before if before else 100.0

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready data."""
        return {
            "schema": SCHEMA,
            "version": self.version,
            "settings": self.settings,
            "input_sha256": self.input_sha256,
            "output_sha256": self.output_sha256,
            "weight_files": list(self.weight_files),
            "old_weights": [asdict(file) for file in self.old_weights],
            "parameters": asdict(self.parameters),
            "grp_percent": round(self.grp_percent, 4),
            "bytes": asdict(self.bytes),
            "multiply_adds": asdict(self.multiply_adds) if self.multiply_adds else None,
            "encrypted": asdict(self.encrypted) if self.encrypted else None,
            "onnx_bytes": self.onnx_bytes,
            "layers": [asdict(layer) for layer in self.layers],
            "folded": [asdict(fold) for fold in self.folded],
            "refused": [asdict(refusal) for refusal in self.refused],
            "verification": asdict(self.verification) if self.verification else None,
            "certificate": asdict(self.certificate) if self.certificate else None,
            "goal": asdict(self.goal) if self.goal else None,
            "int8": asdict(self.int8) if self.int8 else None,
            "assumed": self.assumed,
            "unchanged": self.unchanged,
            "seconds": {stage: round(self.seconds.get(stage, 0.0), 6) for stage in STAGES},
        }

    def to_json(self) -> str:
        """The report as text."""
        return strict_json(self.to_dict())


def versioned(findings: dict[str, Any]) -> dict[str, Any]:
    """Findings with what a reader must know to understand their fields."""
    return {"schema": SCHEMA, "version": __version__, **findings}


def strict_json(value: Any) -> str:
    """A value as JSON text; numbers that JSON does not have (NaN, infinity) become null."""
    text = json.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return escaped(text, "utf-8")


def escaped(text: str, encoding: str) -> str:
    r"""JSON with escapes for the characters that an encoding does not have.

    >>> escaped('"ε"', "ascii")
    '"\\u03b5"'
    """
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return "".join(c if c.isascii() else json.dumps(c)[1:-1] for c in text)
    return text


def finite(value: Any) -> Any:
    """The value with None in the place of every number that is not finite."""
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
