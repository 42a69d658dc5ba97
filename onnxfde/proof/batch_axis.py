"""Whether samples stay apart: the certificate follows one, a dynamic leading axis may hold more.

    f([a; b]) = [f(a); f(b)]      for every operator that a value with a leading axis of N meets

A value is *many* if its leading axis is N times as long for N samples, one block a sample. Shapes
are also computed for `COUNTS` samples, by moving numbers only. Operators that move elements are
tried on labelled ones; others must keep the leading axis where it is. What mixes samples, or
computes with how many there are, raises `Uncertified`. Fixed axes are followed whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxfde.neurons.intervals import Pair, Uncertified
from onnxfde.proof.rules import Site, Value

COUNTS = (2, 3)
Known = npt.NDArray[Any]
Batch = bool | tuple[Known, ...]
"""Whether a value is many; of a shape, what it is for each of `COUNTS` samples."""
MOVING_SHAPES = {
    "Cast", "Concat", "ConstantOfShape", "Gather", "Identity", "Reshape", "Slice", "Squeeze",
    "Transpose", "Unsqueeze",
}  # fmt: skip
MOVING = {
    "Concat", "Expand", "Flatten", "Gather", "Pad", "ReduceMean", "ReduceSum", "Reshape", "Slice",
    "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
}  # fmt: skip
ANY_INPUT = {"Add", "Sum", "Sub", "Mul", "Div", "MatMul", "Gemm"}
MIXED = "it mixes the samples of a batch"
COUNTED = "it computes with the number of samples"


def batch_of(site: Site, name: str, made: Value, batches: Sequence[Batch]) -> Batch:
    """What a node makes of inputs that are many."""
    if all(b is False for b in batches):
        return False
    if name == "Shape":
        return tuple(shape_for(site, count) for count in COUNTS)
    if not any(isinstance(a, Pair) for a in site.inputs):
        return moved_shape(site, name, made, batches)
    if name in MOVING:
        return moved(site, name, batches)
    if any(isinstance(b, tuple) for b in batches):
        raise Uncertified(COUNTED)
    check_kept(site, name, made, batches)
    return True


def shape_for(site: Site, count: int) -> Known:
    """The shape of a value that is many, for this many samples."""
    first = site.inputs[0]
    assert first is not None
    lead, *rest = first.shape
    options = site.options
    whole = np.asarray([count * lead, *rest], dtype=np.int64)
    return whole[options.get("start", 0) : options.get("end")]


def moved_shape(site: Site, name: str, made: Value, batches: Sequence[Batch]) -> Batch:
    """Numbers of a shape, selected and arranged."""
    if name not in MOVING_SHAPES:
        raise Uncertified(COUNTED)
    found = tuple(site.evaluated(inputs_for(site, batches, i)) for i in range(len(COUNTS)))
    if not isinstance(made, Pair):
        return found
    if name != "ConstantOfShape":
        raise Uncertified(COUNTED)
    for a, count in zip(found, COUNTS, strict=True):
        if not made.shape or a.shape != (count * made.shape[0], *made.shape[1:]):
            raise Uncertified(MIXED)
    return True


def inputs_for(
    site: Site, batches: Sequence[Batch], i: int, sample: int | None = None
) -> list[Known | None]:
    """What a node reads for `COUNTS[i]` samples or one of them, labels where a value is many."""
    found: list[Known | None] = []
    for place, (a, batch) in enumerate(zip(site.inputs, batches, strict=True)):
        if isinstance(batch, tuple):
            found.append(batch[i] if sample is None else known(a))
        elif isinstance(a, Pair) and batch:
            labels = labelled(a.shape, COUNTS[i]) * len(batches) + place
            lead = a.shape[0]
            part = slice(None) if sample is None else slice(sample * lead, (sample + 1) * lead)
            found.append(labels[part])
        else:
            found.append(known(a))
    return found


def known(a: Value | None) -> Known | None:
    """A value that is the same for every sample."""
    return a.value.low if isinstance(a, Pair) else a


def labelled(shape: tuple[int, ...], count: int) -> Known:
    """Different numbers for every element of several samples."""
    size = count * int(np.prod(shape))
    return np.arange(1.0, size + 1).reshape(count * shape[0], *shape[1:])


def moved(site: Site, name: str, batches: Sequence[Batch]) -> bool:
    """True if elements of several samples end up as those of each by itself.

    A Reshape that fails for several samples fixes how many there are, to the one that is followed.
    """
    for i, count in enumerate(COUNTS):
        apart = [site.evaluated(inputs_for(site, batches, i, sample)) for sample in range(count)]
        try:
            together = site.evaluated(inputs_for(site, batches, i))
        except Uncertified:
            if name == "Reshape" and i == 0:
                return False
            raise Uncertified(MIXED) from None
        if apart[0].ndim == 0 or not alike(together, np.concatenate(apart)):
            raise Uncertified(MIXED)
    return True


def alike(a: Known, b: Known) -> bool:
    """Whether two arrays are the same but for rounding."""
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=0)


def check_kept(site: Site, name: str, made: Value, batches: Sequence[Batch]) -> None:
    """Refuse what does not keep samples on the leading axis and apart."""
    options, shape = site.options, made.shape
    for place, batch in enumerate(batches):
        a = site.inputs[place]
        if not batch or a is None:
            continue
        kept = len(a.shape) == len(shape) and a.shape[:1] == shape[:1]
        if not kept or (place > 0 and name not in ANY_INPUT):
            raise Uncertified(MIXED)
    default = 1 if site.opset < 13 else -1
    if name == "Softmax" and options.get("axis", default) % len(shape) == 0:
        raise Uncertified(MIXED)
    if name == "Gemm" and (batches[1] or (batches[0] and options.get("transA", 0))):
        raise Uncertified(MIXED)


def check_chain(x: Pair, columns: bool) -> None:
    """Refuse a chain along the leading axis."""
    if len(x.shape) < (3 if columns else 2):
        raise Uncertified(MIXED)
