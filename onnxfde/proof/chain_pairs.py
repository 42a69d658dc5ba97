"""Values of two graphs that are both made by a chain, and the pair that the chains give.

Two chains can be compared if they have as many squares and read and make values of the same form.
They start from the last joint that both have, if they have one: nothing needs to be followed that
changed on the way to it.

Chains with other activations are as long as possible without a square in them, as squares are
bounded more closely among themselves; if they then read values of different widths, because
neurons before them were merged, they are as short as possible with squares.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from onnxfde.graph.model import Graph
from onnxfde.neurons.intervals import Pair
from onnxfde.numbers import FloatArray
from onnxfde.proof.chain_bounds import chain_change
from onnxfde.proof.curved_chains import CurvedChain, curved_change
from onnxfde.proof.read_chain import Chain, read_chain

Side = tuple[Graph, str]
"""A graph and the name of a value in it."""


def read_both_chains(original: Side, result: Side) -> tuple[Chain, Chain] | None:
    """The chains that make a value of each graph, if they can be compared."""
    old, new = read_chain(*original), read_chain(*result)
    if old is None or new is None or not comparable(old, new):
        return None
    joint = last_joint(old, new)
    if joint is None:
        return old, new
    old, new = read_chain(*original, joint), read_chain(*result, joint)
    assert old is not None
    assert new is not None
    return old, new


def read_both_curved_chains(original: Side, result: Side) -> tuple[Chain, Chain] | None:
    """The chains with other activations than squares that make a value of each graph."""
    old, new = (read_chain(*side, curved=True) for side in (original, result))
    if old is None or new is None or not old.curved:
        return None
    count = curved_count(old, new)
    if count is None:
        return None
    ends = [cut_at(chain, count) for chain in (old, new)]
    found = [
        chain if end == chain.base else read_chain(*side, end, curved=True)
        for chain, side, end in zip((old, new), (original, result), ends, strict=True)
    ]
    old, new = found
    if old is None or new is None or not comparable(old, new):
        return None
    return old, new


def curved_count(old: Chain, new: Chain) -> int | None:
    """Over how many of their last functions two chains are to be compared, if over any."""
    squares = [function.is_square for function in reversed(old.functions)]
    trailing = squares.index(False)
    others = next((k for k, square in enumerate(squares) if square), len(squares))
    possible = [k for k in range(len(squares) + 1) if can_cut(old, new, k)]
    without = [k for k in possible if 0 < k <= others]
    if without:
        return max(without)
    if any(k <= trailing for k in possible):
        return None
    return min(possible, default=None)


def can_cut(old: Chain, new: Chain, count: int) -> bool:
    """Whether two chains read values of the same width that many functions before their end."""
    if count > len(new.functions) or (count == len(old.functions)) != (count == len(new.functions)):
        return False
    functions = zip(
        old.functions[len(old.functions) - count :],
        new.functions[len(new.functions) - count :],
        strict=True,
    )
    wide = [chain.maps[-count - 1].weight.shape[1] for chain in (old, new)]
    named = all(cut_at(chain, count) for chain in (old, new))
    return named and wide[0] == wide[1] and all(a.fits(b) for a, b in functions)


def cut_at(chain: Chain, count: int) -> str:
    """The value that a chain reads that many functions before its end."""
    return chain.base if count == len(chain.functions) else chain.hidden[-count - 1]


def comparable(old: Chain, new: Chain) -> bool:
    """Whether two chains have as many squares, and read and make values of the same form."""
    forms = [
        (len(chain.maps), chain.layout, chain.flattened, chain.lead, *widths(chain))
        for chain in (old, new)
    ]
    return forms[0] == forms[1]


def widths(chain: Chain) -> tuple[int, int]:
    """How many features a chain reads and makes."""
    return chain.maps[0].weight.shape[1], len(chain.maps[-1].weight)


def last_joint(old: Chain, new: Chain) -> str | None:
    """The last joint that both chains have."""
    common = [name for _, name, _ in old.joints if joint_at(old, name) == joint_at(new, name)]
    return common[-1] if common else None


def joint_at(chain: Chain, name: str) -> tuple[int, int] | None:
    """The number of squares before a joint of this name, and the number of its features."""
    found = ((place, width) for place, other, width in chain.joints if other == name)
    return next(found, None)


def chain_pair(old: Chain, new: Chain, base: Pair) -> Pair:
    """What two chains make of the pair they read."""
    rows = ChainRows.of(base, old)
    same = tuple(a == b for a, b in zip(old.signatures, new.signatures, strict=True))
    x = base.mapped(rows.folded)
    if old.curved:
        before, after = (CurvedChain(chain.maps, chain.functions) for chain in (old, new))
        value, change = curved_change(before, after, same, x.value, x.change)
    else:
        value, change = chain_change(old.maps, new.maps, same, x.value, x.change)
    return Pair(value, change, chain_size(old, x.size)).mapped(rows.unfolded)


def chain_size(chain: Chain, size: FloatArray) -> FloatArray:
    """A of what a chain makes, from A of what it reads."""
    for f, function in zip(chain.maps, chain.functions, strict=False):
        size = function.activation.magnitude(f.magnitude(size), *function.unit_parameters)
    return chain.maps[-1].magnitude(size)


@dataclass(frozen=True)
class ChainRows:
    """How the value that a chain reads is arranged as rows of features, and rows as its result."""

    lead: tuple[int, ...]
    width: int
    columns: bool
    flattened: bool

    @classmethod
    def of(cls, base: Pair, chain: Chain) -> ChainRows:
        """The arrangement for a chain and the pair it reads."""
        columns = chain.layout == "columns" and len(base.shape) > 1
        shape = (*base.shape[:-2], base.shape[-1]) if columns else base.shape[:-1]
        if chain.lead is not None:
            shape = (math.prod(shape) // math.prod(chain.lead[1:]), *chain.lead[1:])
        return cls(shape, chain.maps[0].weight.shape[1], columns, chain.flattened)

    def folded(self, a: FloatArray) -> FloatArray:
        """A value as rows of features."""
        a = np.moveaxis(a, -2, -1) if self.columns else a
        rows = np.broadcast_to(a, (*a.shape[:-1], self.width))
        return rows.reshape(math.prod(rows.shape[:-1]), self.width)

    def unfolded(self, a: FloatArray) -> FloatArray:
        """Rows of features as a value."""
        if self.flattened:
            return a
        a = a.reshape(*self.lead, a.shape[-1])
        return np.moveaxis(a, -1, -2) if self.columns else a
