"""Units that do nothing the others cannot do are removed; what they did goes to those who stay.

V_k ← V_k + Σ_i m_ik V_i        c ← c + Σ_i V_i c_i        (`unit_facts`)
"""

from __future__ import annotations

import numpy as np

from onnxfde.graph.axes import Axis
from onnxfde.graph.axis_readers import reader_bias, reader_matrix
from onnxfde.graph.edit_axes import keep_units, write_reader
from onnxfde.graph.model import Graph
from onnxfde.numbers import FloatArray, Indices
from onnxfde.passes.unit_facts import UnitFacts


def remove_units(graph: Graph, axis: Axis, facts: UnitFacts, align: int = 1) -> Axis:
    """Remove the units of an axis that facts are known of; returns what is left.

    As few of them stay as make a multiple of `align`.
    """
    kept = facts.kept_in_multiples(align)
    if len(kept) == axis.units:
        return axis
    fitted = [merged_blocks(graph, axis, facts, i, kept) for i in range(len(axis.readers))]
    left = keep_units(graph, axis, kept)
    for reader, (matrix, bias) in zip(left.readers, fitted, strict=True):
        write_reader(graph, reader, matrix, bias)
    return left


def merged_blocks(
    graph: Graph, axis: Axis, facts: UnitFacts, place: int, kept: Indices
) -> tuple[FloatArray, FloatArray]:
    """The matrix and the bias of a reader of which only these units stay."""
    reader = axis.readers[place]
    matrix, bias = reader_matrix(graph, reader), reader_bias(graph, reader)
    blocks = matrix[:, reader.columns]
    gone = facts.constant.copy()
    gone[kept] = False
    bias = bias + np.einsum("oib,ib->o", blocks[:, gone], facts.numbers[place][gone])
    mix = facts.mix * ~facts.constant[:, None]
    mix[kept] = 0.0
    mix[kept, kept] = 1.0
    mixed = np.einsum("oib,ik->okb", blocks, mix[:, kept])
    found, columns = np.zeros((len(matrix), kept.size * blocks.shape[2])), reader.columns[kept]
    found[:, np.searchsorted(np.sort(columns, axis=None), columns)] = mixed
    return found, bias
