"""Fewer channels by other methods, on the ONNX file: about the same share of every axis.

`magnitude_pruned` keeps the channels with the largest ‖incoming‖·‖outgoing‖ weights.
`interpolated` keeps channels of which the others are nearly linear combinations (Chee, Flynn,
Damle, De Sa: Model Preserving Compression for Neural Networks, 2022), by QR with column pivoting of
what the channels are at drawn positions. It then fits the k×k weights of the readers as onnxfde's
refit does: to the original's sums, on what the network smaller so far computes. So it differs from
refit only in which channels stay, and in that all axes give the same share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx

from onnxfde.graph.axes import Axis
from onnxfde.graph.axis_costs import axis_costs
from onnxfde.graph.cost import multiply_adds, one_sample
from onnxfde.graph.edit_axes import keep_units, write_reader
from onnxfde.graph.find_axes import find_axes, read_again
from onnxfde.graph.model import Graph
from onnxfde.graph.weight_matrices import weight_matrix
from onnxfde.numbers import Array, Indices
from onnxfde.running.moments import ReaderSums, refitted_weights, values_of
from onnxfde.running.windows import POSITIONS

BATCH = 100
"""Images of one run; chosen."""
STEPS = 200
"""Shares that are tried to stay below a limit; chosen."""


class NotPossibleError(RuntimeError):
    """A method that cannot do what is asked."""


def share_of(size: str) -> float:
    """A size such as "75% MACs" as a number."""
    return int(size.partition("%")[0]) / 100


def largest_share(size: str, macs: Callable[[float], int | None], whole: int | None) -> float:
    """The share of every axis: the one asked for, or the largest below a limit of multiply-adds."""
    if size.endswith("of each"):
        return share_of(size)
    for step in range(STEPS, 0, -1):
        found = macs(step / STEPS)
        if found is not None and whole is not None and found <= share_of(size) * whole:
            return step / STEPS
    raise NotPossibleError("more multiply-adds are left with one channel in every axis")


def kept_of(units: int, share: float) -> int:
    """How many channels a share is: at most that, and one at least."""
    return max(int(share * units + 1e-9), 1)


def channel_counts(graph: Graph, axes: Sequence[Axis], size: str) -> dict[str, int]:
    """How many channels each axis keeps; below a limit, one more where it still fits."""
    costs = axis_costs(graph, axes, one_sample(graph))
    whole = costs.total_macs({}) or 0

    def counts(share: float) -> dict[str, int]:
        return {axis.name: kept_of(axis.units, share) for axis in axes}

    found = counts(largest_share(size, lambda share: costs.total_macs(counts(share)), whole))
    for axis in axes if size.endswith("MACs") else ():
        more = {**found, axis.name: min(found[axis.name] + 1, axis.units)}
        if (costs.total_macs(more) or 0) <= share_of(size) * whole:
            found = more
    return found


def reduced(path: Path, size: str, reduce: Callable[[Graph, Axis, int], None]) -> onnx.ModelProto:
    """A model whose axes are made smaller one after the other."""
    graph = Graph(onnx.load(path))
    axes = find_axes(graph)[0]
    counts = channel_counts(graph, axes, size)
    for axis in axes:
        reduce(graph, read_again(graph, axis), counts[axis.name])
    return graph.model


def magnitude_pruned(path: Path, x: Array, size: str) -> onnx.ModelProto:
    """Keep the strongest channels; nothing makes up for the others."""
    del x

    def reduce(graph: Graph, axis: Axis, count: int) -> None:
        strength = strengths(graph, axis)
        keep_units(graph, axis, np.sort(np.argsort(-strength, kind="stable")[:count]))

    return reduced(path, size, reduce)


def strengths(graph: Graph, axis: Axis) -> Array:
    """‖w_j‖·‖V_j‖ of every channel."""
    incoming = np.linalg.norm(weight_matrix(graph, axis.producer.node), axis=1)
    blocks = [weight_matrix(graph, r.node)[:, r.columns] for r in axis.readers]
    outgoing = sum(np.square(block).sum(axis=(0, 2)) for block in blocks)
    return np.asarray(incoming * np.sqrt(outgoing))


def interpolated(path: Path, x: Array, size: str) -> onnx.ModelProto:
    """Interpolative decomposition, then a refit of the readers."""
    original = onnx.load(path)

    def reduce(graph: Graph, axis: Axis, count: int) -> None:
        if count == axis.units:
            return
        sums = [ReaderSums.of(graph, reader) for reader in axis.readers]
        rows = []
        for run, (values, originals) in enumerate(both_values(graph, original, axis, x)):
            for one in sums:
                one.add(values, originals, POSITIONS, (0, run))
            rows.append(units_of(values[axis.readers[0].value], axis.units))
        moments = [one.moments() for one in sums]
        kept = chosen_units(np.concatenate(rows), count)
        fits = [
            refitted_weights(r, m, kept) for r, m in zip(axis.readers, moments, strict=True)
        ]  # fmt: skip
        smaller = keep_units(graph, axis, kept)
        for reader, (weights, bias) in zip(smaller.readers, fits, strict=True):
            write_reader(graph, reader, weights, bias)

    return reduced(path, size, reduce)


def both_values(
    graph: Graph, original: onnx.ModelProto, axis: Axis, x: Array
) -> Iterator[tuple[Mapping[str, Array], Mapping[str, Array]]]:
    """What an axis's readers read in the smaller network, and their targets in the original."""
    read = [name for reader in axis.readers for name in values_of(reader)]
    targets = [reader.target for reader in axis.readers]
    yield from zip(run_values(graph.model, read, x), run_values(original, targets, x), strict=True)


def run_values(
    model: onnx.ModelProto, names: Sequence[str], x: Array
) -> Iterator[dict[str, Array]]:
    """Values inside a model, run by run."""
    from onnxruntime import InferenceSession, SessionOptions

    shown = deepcopy(model)
    names = list(dict.fromkeys(names))
    del shown.graph.output[:]
    for name in names:
        value = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        shown.graph.output.append(value)
    options = SessionOptions()
    options.intra_op_num_threads = 1
    session = InferenceSession(shown.SerializeToString(), options, ["CPUExecutionProvider"])
    source = session.get_inputs()[0].name
    for at in range(0, len(x), BATCH):
        found = session.run(names, {source: x[at : at + BATCH]})
        yield dict(zip(names, map(np.asarray, found), strict=True))


def units_of(values: Array, units: int) -> Array:
    """What every channel is at some positions, positions × channels."""
    rows = np.moveaxis(values.reshape(len(values), units, -1), 1, 2)
    drawn = np.random.default_rng(0).permutation(rows.shape[1])[:POSITIONS]
    return rows[:, drawn].reshape(-1, units)


def chosen_units(rows: Array, count: int) -> Indices:
    """The first pivots of Z P = Q R, in rising order."""
    from scipy.linalg import qr

    _, order = qr(rows.astype(np.float64), mode="r", pivoting=True)
    return np.sort(order[:count])


def onnxsim_pruned(path: Path, x: Array, size: str) -> onnx.ModelProto:
    """The channels with the smallest incoming weights go, as onnxsim chooses."""
    del x
    return pruned_by_onnxsim("apply_structured_pruning", path, size, {})


def onnxsim_wanda_pruned(path: Path, x: Array, size: str) -> onnx.ModelProto:
    """The same, with weights multiplied by how large their inputs are."""
    name = onnx.load(path).graph.input[0].name
    options = {"calibration_data": [{name: x}]}
    return pruned_by_onnxsim("apply_structured_wanda_pruning", path, size, options)


def pruned_by_onnxsim(
    function: str, path: Path, size: str, options: Mapping[str, object]
) -> onnx.ModelProto:
    """The largest share of the channels that stays below the limit; both functions keep as many."""
    onnxsim = import_module("onnxsim")

    def macs(share: float) -> int | None:
        return macs_of(onnxsim.apply_structured_pruning(onnx.load(path), sparsity=1 - share))

    whole = macs(1.0)
    if macs(0.5) == whole:
        raise NotPossibleError("removes no channel")
    sparsity = 1 - largest_share(size, macs, whole)
    pruned: onnx.ModelProto = getattr(onnxsim, function)(
        onnx.load(path), sparsity=sparsity, **options
    )
    return pruned


def macs_of(model: onnx.ModelProto) -> int | None:
    """Multiply-adds of one sample."""
    return multiply_adds(model, one_sample(Graph(model)))
