"""A certificate follows a single sample; this module checks that it then holds for whole batches.

    f([a; b]) = [f(a); f(b)]      for every node that reads a batch of samples a, b

A value is a *batch* if N samples make its leading axis N times as long, one block per sample; this
starts at inputs whose leading axis has no fixed length. A node that only moves elements (`moves`
in the table of operators) is run on labelled elements, all samples together and each alone; any
other node must keep the leading axis in place. Shapes depend on N: they are computed for each N in
`SAMPLE_COUNTS`, and their numbers may be selected and rearranged but not computed with. A node
that mixes samples or computes with N raises `Uncertified`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxfde.neurons.intervals import Pair, Uncertified
from onnxfde.proof.node_call import Known, NodeCall, Value
from onnxfde.proof.operator_table import OPERATORS, Operator

SAMPLE_COUNTS = (2, 3)
"""The batch sizes that are tried: two of them, so that no node can pass by assuming one size."""
LABEL_TOLERANCE = 1e-9
"""The relative difference between sums of labels that is put down to rounding; labels are integers,
so elements of another sample differ by far more. Chosen; not tuned."""
Batch = bool | tuple[Known, ...]
"""Whether a value is a batch; for a shape, its numbers for each of `SAMPLE_COUNTS`."""
MIXED = "it mixes the samples of a batch"
COUNTED = "it computes with the number of samples"


def batch_of(call: NodeCall, name: str, made: Value, batches: Sequence[Batch]) -> Batch:
    """Whether the output of a node is a batch, given which of its inputs are."""
    if all(b is False for b in batches):
        return False
    operator = OPERATORS[name]
    if operator.reads_shape:
        return tuple(shape_for(call, count) for count in SAMPLE_COUNTS)
    if not any(isinstance(a, Pair) for a in call.inputs):
        return moved_shape(call, operator, made, batches)
    if operator.moves:
        return moved_elements(call, operator, batches)
    if any(isinstance(b, tuple) for b in batches):
        raise Uncertified(COUNTED)
    check_kept(call, operator, made, batches)
    return True


def shape_for(call: NodeCall, count: int) -> Known:
    """The shape of a batch of this many samples."""
    first = call.inputs[0]
    assert first is not None
    lead, *rest = first.shape
    options = call.options
    whole = np.asarray([count * lead, *rest], dtype=np.int64)
    return whole[options.get("start", 0) : options.get("end")]


def moved_shape(call: NodeCall, operator: Operator, made: Value, batches: Sequence[Batch]) -> Batch:
    """The numbers of a shape after a node that selects or rearranges them, or fills the shape."""
    if operator.on_known not in ("moves", "fills"):
        raise Uncertified(COUNTED)
    found = tuple(call.evaluated(inputs_for(call, batches, i)) for i in range(len(SAMPLE_COUNTS)))
    if not isinstance(made, Pair):
        return found
    if operator.on_known != "fills":
        raise Uncertified(COUNTED)
    for a, count in zip(found, SAMPLE_COUNTS, strict=True):
        if not made.shape or a.shape != (count * made.shape[0], *made.shape[1:]):
            raise Uncertified(MIXED)
    return True


def inputs_for(
    call: NodeCall, batches: Sequence[Batch], i: int, sample: int | None = None
) -> list[Known | None]:
    """What a node reads from `SAMPLE_COUNTS[i]` samples, or from one of them; batches as labels."""
    found: list[Known | None] = []
    for place, (a, batch) in enumerate(zip(call.inputs, batches, strict=True)):
        if isinstance(batch, tuple):
            found.append(batch[i] if sample is None else numbers_of(a))
        elif isinstance(a, Pair) and batch:
            labels = labelled(a.shape, SAMPLE_COUNTS[i]) * len(batches) + place
            lead = a.shape[0]
            part = slice(None) if sample is None else slice(sample * lead, (sample + 1) * lead)
            found.append(labels[part])
        else:
            found.append(numbers_of(a))
    return found


def numbers_of(a: Value | None) -> Known | None:
    """The array of a value that does not depend on the sample."""
    return a.value.low if isinstance(a, Pair) else a


def labelled(shape: tuple[int, ...], count: int) -> Known:
    """A batch of this many samples in which every element is a different number."""
    size = count * int(np.prod(shape))
    return np.arange(1.0, size + 1).reshape(count * shape[0], *shape[1:])


def moved_elements(call: NodeCall, operator: Operator, batches: Sequence[Batch]) -> bool:
    """True if a node moves the elements of each sample as it would if that sample were alone.

    False if a Reshape fails for several samples: its output then has room for one sample only, the
    one that is followed.
    """
    for i, count in enumerate(SAMPLE_COUNTS):
        apart = [call.evaluated(inputs_for(call, batches, i, sample)) for sample in range(count)]
        try:
            together = call.evaluated(inputs_for(call, batches, i))
        except Uncertified:
            if operator.fixes_count and i == 0:
                return False
            raise Uncertified(MIXED) from None
        if apart[0].ndim == 0 or not equal_labels(together, np.concatenate(apart)):
            raise Uncertified(MIXED)
    return True


def equal_labels(a: Known, b: Known) -> bool:
    """Whether two arrays of labels, or of their sums, are equal up to rounding."""
    return a.shape == b.shape and np.allclose(a, b, rtol=LABEL_TOLERANCE, atol=0)


def check_kept(call: NodeCall, operator: Operator, made: Value, batches: Sequence[Batch]) -> None:
    """Refuse a node that does not keep the leading axis in place and its samples apart."""
    for place, batch in enumerate(batches):
        a = call.inputs[place]
        if not batch or a is None:
            continue
        kept = len(a.shape) == len(made.shape) and a.shape[:1] == made.shape[:1]
        if not kept or (place > 0 and operator.batch_inputs == "first"):
            raise Uncertified(MIXED)
    if operator.mixes(call, batches):
        raise Uncertified(MIXED)


def check_chain(x: Pair, columns: bool) -> None:
    """Refuse a chain that starts at a batch and runs along its leading axis."""
    if len(x.shape) < (3 if columns else 2):
        raise Uncertified(MIXED)
