"""`minimal` for channels: what elimination and a refit leave is moved downhill (`local_descent`).

The chain from the producer to the target is read from the graph, its maps are recorded in the
network as it is now and the target in the original, and the weights are written back if images that
are held out gain.
"""

from __future__ import annotations

import numpy as np

from onnxfde.deadline import Deadline
from onnxfde.graph.affine_maps import NoMatch
from onnxfde.graph.axes import Axis
from onnxfde.graph.axis_chain import axis_chain
from onnxfde.neurons.local_descent import Reconstruction, descend, descent_fault
from onnxfde.numbers import Array
from onnxfde.running.recording import Recording


def as_maps(values: Array) -> Array:
    """Values as maps: signals have one row, and rows of features one position."""
    if values.ndim == 3:
        return values[:, :, None, :]
    return values[:, :, None, None] if values.ndim == 2 else values


def recorded_maps(recording: Recording, name: str) -> Array:
    """A value on all samples as maps."""
    return as_maps(np.concatenate([run[name] for run in recording.batches([name])]))


def descend_axis(
    original: Recording, current: Recording, axis: Axis, seed: int, deadline: Deadline
) -> bool:
    """Move the weights around an axis of the current network; False if that gains nothing.

    NoMatch says why it cannot be.
    """
    graph, reader = current.graph, axis.readers[0]
    if fault := descent_fault(current.samples.rows, len(axis.readers)):
        raise NoMatch(fault)
    source = recorded_maps(current, axis.producer.source)
    way = axis_chain(graph, axis, (int(source.shape[2]), int(source.shape[3])))
    other = None if reader.added is None else recorded_maps(current, reader.added.other)
    target = recorded_maps(original, reader.target)
    chosen_by = current.samples.to_choose_by[: current.samples.fed]
    chosen_by = np.repeat(chosen_by, len(source) // max(len(chosen_by), 1))
    problem = Reconstruction(way.chain, source, target, other, way.after, way.fixed, chosen_by)
    found = descend(problem, seed=seed, deadline=deadline)
    if found.after >= found.before:
        return False
    way.write(graph, found.chain)
    return True
