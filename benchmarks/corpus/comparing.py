"""Two model files side by side: the same interface, the same values.

Outputs y and y′ are equal if |y′ − y| ≤ TOLERANCE·max |y| for every output, on every input. Their
change is ‖y′ − y‖ / ‖y − mean y‖ over all random inputs, the largest of all outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.corpus.cases import Case
from benchmarks.corpus.running import ENGINES, ERRORS, Feed, Run, feeds_that_run, is_float

TOLERANCE = {"float64": 1e-9, "float32": 2e-5, "float16": 2e-2, "bfloat16": 1e-1}
"""Largest difference that counts as rounding, relative to the largest value of an output. Chosen:
about 200 units in the last place, a few additions in another order."""


@dataclass
class Comparison:
    """What a comparison found."""

    fault: str = ""
    """What is wrong with the result, whatever ε is; empty if nothing is."""
    uncompared: str = ""
    """Why no values were compared; empty if some were."""
    engine: str = ""
    feeds: int = 0
    rounding: float = 0.0
    """Largest difference relative to the largest value, in multiples of the tolerance."""
    change: float = 0.0
    """Relative L2 of the output that changed most, over the random inputs."""


def compare(case: Case, result: Path) -> Comparison:
    """Compare a result with the model it was made from."""
    fault = interface_fault(case.path, result)
    if fault:
        return Comparison(fault=fault)
    reason = "no engine"
    for engine, load in ENGINES.items():
        try:
            before = load(case.path)
        except ERRORS as error:
            reason = f"{engine} cannot load the original: {str(error).strip()[:200]}"
            continue
        stored, drawn, reason = feeds_that_run(case, before)
        if not stored and not drawn:
            continue
        try:
            after = load(result)
        except ERRORS as error:
            return Comparison(fault=f"{engine} cannot load the result: {str(error).strip()[:300]}")
        return compared(before, after, stored, drawn, engine)
    return Comparison(uncompared=reason)


def compared(
    before: Run, after: Run, stored: list[Feed], drawn: list[Feed], engine: str
) -> Comparison:
    """Both models on the same inputs."""
    found = Comparison(engine=engine, feeds=len(stored) + len(drawn))
    pairs: list[tuple[list[Any], list[Any]]] = []
    for feed in [*stored, *drawn]:
        old = before(feed)
        try:
            new = after(feed)
        except ERRORS as error:
            found.fault = f"{engine} runs the original, not the result: {str(error).strip()[:300]}"
            return found
        pairs.append((leaves(old), leaves(new)))
    for old, new in pairs:
        found.fault = found.fault or shape_fault(old, new)
        if found.fault:
            return found
        found.rounding = max([found.rounding, *map(rounding, old, new)])
    found.change = largest_change(pairs[len(stored) :])
    return found


def leaves(value: Any) -> list[Any]:
    """All arrays of a list of outputs; sequences, maps and optional values are unfolded.

    The maps of a sequence are one array of keys and one of values, which onnx stores as float32.
    """
    if isinstance(value, list) and value and all(isinstance(part, dict) for part in value):
        keys = [key for part in value for key in part]
        numbers = [number for part in value for number in part.values()]
        return [np.asarray(keys), np.asarray(numbers, dtype=np.float32)]
    if isinstance(value, list | tuple):
        return [leaf for part in value for leaf in leaves(part)]
    return [] if value is None else [np.asarray(value)]


def shape_fault(old: list[Any], new: list[Any]) -> str:
    """What differs besides rounding: shapes, types, integers, places that are not finite."""
    if len(old) != len(new):
        return f"{len(new)} values instead of {len(old)}"
    for at, (a, b) in enumerate(zip(old, new, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {at} is {b.dtype}{b.shape}, was {a.dtype}{a.shape}"
        if not is_float(a) and a.dtype.kind not in "iub" and not np.array_equal(a, b):
            return f"output {at} differs"
        if is_float(a) and not np.isfinite(wide(b)[np.isfinite(wide(a))]).all():
            return f"output {at} is not finite where the original is"
    return ""


def wide(array: Any) -> Any:
    """Numbers in double precision."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def rounding(old: Any, new: Any) -> float:
    """The largest difference in units of what is allowed; integers must be equal."""
    if not old.size or old.dtype.kind in "OUS":
        return 0.0
    a, b = wide(old), wide(new)
    finite = np.isfinite(a)
    difference = np.abs(b - a, where=finite, out=np.zeros(a.shape))
    worst = float(difference.max())
    if not is_float(old):
        return float("inf") if worst else 0.0
    size = float(np.abs(a[finite]).max(initial=0.0))
    allowed = TOLERANCE.get(old.dtype.name, 0.2) * size
    return worst / allowed if allowed else (float("inf") if worst else 0.0)


def largest_change(pairs: list[tuple[list[Any], list[Any]]]) -> float:
    """Relative L2 over all random inputs, of the output that changed most."""
    changes = [0.0]
    for at in range(len(pairs[0][0]) if pairs else 0):
        columns = [(old[at], new[at]) for old, new in pairs if at < len(old)]
        if is_float(columns[0][0]) and len({old.shape for old, _ in columns}) == 1:
            old, new = (wide(np.stack(part)) for part in zip(*columns, strict=True))
            changes.append(relative_change(old, new))
    return max(changes)


def relative_change(old: Any, new: Any) -> float:
    """‖y′ − y‖ / ‖y − mean y‖; the mean over samples, or over all values of a single one."""
    rows = old.reshape(-1, *old.shape[2:]) if old.ndim > 1 and old.shape[1:2] else old
    finite = np.isfinite(old)
    difference = np.linalg.norm(np.where(finite, new - old, 0))
    mean = rows.mean(axis=0, keepdims=True) if len(rows) > 1 else rows.mean()
    spread = np.linalg.norm(np.where(np.isfinite(rows), rows - mean, 0))
    return float(difference / spread) if spread else (float("inf") if difference else 0.0)


def interface_fault(original: Path, result: Path) -> str:
    """What differs in names, types, shapes and descriptions, which no merge may touch."""
    try:
        old, new = (onnx.load(path, load_external_data=False) for path in (original, result))
    except ERRORS as error:
        return f"onnx cannot read the result: {error}"
    for what in ("input", "output"):
        a, b = (values(given(model, what)) for model in (old, new))
        if a != b:
            return f"the graph's {what}s changed: {first_difference(a, b)}"
    return first_lost(old, new) or checker_fault(original, result)


def given(model: onnx.ModelProto, what: str) -> list[onnx.ValueInfoProto]:
    """Inputs or outputs; in IR version 3 constants are inputs too, which no caller gives."""
    stored = model.graph.initializer if model.ir_version < 4 else ()
    constants = {tensor.name for tensor in stored}
    return [value for value in getattr(model.graph, what) if value.name not in constants]


def values(infos: Any) -> list[tuple[str, bytes]]:
    """Names and types of inputs or outputs, in order."""
    return [(info.name, info.type.SerializeToString(deterministic=True)) for info in infos]


def first_difference(old: list[Any], new: list[Any]) -> str:
    """The first entries that differ."""
    pairs = zip([*old, None], [*new, None], strict=False)
    return next((f"{a} became {b}" for a, b in pairs if a != b), "their number")


def first_lost(old: onnx.ModelProto, new: onnx.ModelProto) -> str:
    """A description that the result has lost, or a version that it has raised."""
    for field in ("doc_string", "domain", "model_version", "ir_version"):
        if getattr(old, field) != getattr(new, field):
            return f"{field} changed from {getattr(old, field)!r} to {getattr(new, field)!r}"
    for field in ("name", "doc_string"):
        if getattr(old.graph, field) != getattr(new.graph, field):
            return f"the graph's {field} changed"
    kept = {(entry.key, entry.value) for entry in new.metadata_props}
    lost = {entry.key for entry in old.metadata_props if (entry.key, entry.value) not in kept}
    if lost:
        return f"metadata lost: {sorted(lost)}"
    versions = {entry.domain: entry.version for entry in new.opset_import}
    moved = {e.domain for e in old.opset_import if versions.get(e.domain) != e.version}
    if moved:
        return f"opset of domain {sorted(moved)} changed"
    functions = {(f.domain, f.name) for f in new.functions}
    gone = [f.name for f in old.functions if (f.domain, f.name) not in functions]
    return f"functions lost: {gone}" if gone else ""


def checker_fault(original: Path, result: Path) -> str:
    """What onnx's checker says of the result, if it accepts the original."""
    if checker_says(original):
        return ""
    said = checker_says(result)
    return f"onnx's checker: {said}" if said else ""


def checker_says(path: Path) -> str:
    """What onnx's checker says of a model; empty if it is valid."""
    try:
        onnx.checker.check_model(str(path))
    except ERRORS as error:
        return str(error).strip().splitlines()[0][:300] or type(error).__name__
    return ""
