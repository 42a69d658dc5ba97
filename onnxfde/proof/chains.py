"""A chain as it is read from a graph: the value it starts from, its maps and its functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxfde.graph.affine_maps import Layout
from onnxfde.graph.protos import NodeProto
from onnxfde.proof.affine_bounds import Map
from onnxfde.proof.chain_bounds import Maps
from onnxfde.proof.hidden_functions import HiddenFunction
from onnxfde.proof.node_signatures import Signature
from onnxfde.proof.polynomial_steps import PolynomialStep


@dataclass
class Chain:
    """A chain in a graph, which grows node by node: the value it reads and the maps it applies."""

    base: str
    layout: Layout | None = None
    maps: Maps = ()
    functions: tuple[HiddenFunction, ...] = ()
    """What stands between the maps."""
    hidden: tuple[str, ...] = ()
    """The values that the functions make; "" where a completed square makes another one."""
    dtype: np.dtype[Any] | None = None
    """The type of the last weights."""
    signatures: tuple[Signature, ...] = ()
    """What each map is made of; maps with equal signatures are the same function."""
    flattened: bool = False
    lead: tuple[int, ...] | None = None
    """The axes before the features as the last Reshape gives them, −1 first; () if not known."""
    joints: list[tuple[int, str, int]] = field(default_factory=list)
    """The number of squares before a joint, its name, and the number of its features."""
    current: Map | None = None
    """The map that is being read, which has no square after it yet."""
    made_of: Signature = ()
    """What `current` is made of."""
    pending: list[NodeProto | PolynomialStep] = field(default_factory=list)
    """Factors and terms that come before the first Gemm or MatMul of a map."""
    computed: list[str] = field(default_factory=list)
    """Values computed by the last Gemm or MatMul and since then."""

    @property
    def curved(self) -> bool:
        """Whether there are other functions than squares between the maps."""
        return not all(function.is_square for function in self.functions)

    def bend(self, last: Map, function: HiddenFunction, value: str) -> None:
        """End the map that is being read with a function behind it."""
        self.close_map(last)
        self.functions, self.hidden = (*self.functions, function), (*self.hidden, value)

    def close_map(self, last: Map) -> None:
        """End the map that is being read."""
        self.maps, self.signatures = (*self.maps, last), (*self.signatures, self.made_of)
        self.current, self.made_of = None, ()


def features_read(chain: Chain) -> int | None:
    """How many features the next map of a chain reads, unless a factor turns one into several."""
    last = chain.current or (chain.maps[-1] if chain.maps else None)
    return None if last is None else len(last.weight)


def restart_chain(chain: Chain, base: str) -> None:
    """Start a chain again, at a later value."""
    chain.base, chain.maps, chain.signatures, chain.flattened = base, (), (), False
    chain.functions, chain.hidden, chain.lead = (), (), None
    chain.joints, chain.current, chain.pending, chain.made_of = [], None, [], ()
