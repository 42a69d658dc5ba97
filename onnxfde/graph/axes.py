"""An axis: n units (channels) that one node makes, others change one by one, and others read.

    producer  →  inner nodes  →  readers
    n rows       unit by unit    a block of columns for each unit

A reader sums over windows of the units: at each position of its output

    o = c + Σ_j V_j φ_j          φ_j: what unit j is in the window, V_j: outputs × numbers in φ_j

Dense layers are the case of windows with one position. In a residual network `o` goes into a sum,
o + shortcut; what counts then is the sum.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from onnxfde.graph.protos import NodeProto
from onnxfde.numbers import FloatArray, Indices


@dataclass(frozen=True, eq=False)
class Port:
    """A constant with numbers for every unit: an input of a node, along one of its axes."""

    node: NodeProto
    place: int
    dim: int
    run: int = 1
    """How many entries side by side belong to one unit; a flattened value has several."""


@dataclass(frozen=True, eq=False)
class Length:
    """An entry of a constant with lengths (of a Reshape or Resize) that counts the units."""

    node: NodeProto
    place: int
    entry: int
    block: int = 1
    """The entry is so many times the number of units."""


@dataclass(frozen=True, eq=False)
class Producer:
    """The node that makes the units: Conv with one group, Gemm or MatMul."""

    node: NodeProto
    weight: Port
    bias: Port | None
    """None if it adds none; that of a MatMul is in an Add behind it."""
    source: str
    """The value that it reads."""
    value: str
    """The value that it makes, with its bias."""


@dataclass(frozen=True, eq=False)
class Inner:
    """A node that acts on each unit by itself, and its constants that have numbers for each."""

    node: NodeProto
    ports: tuple[Port, ...] = ()
    depthwise: bool = False
    """Whether it is a Conv with one group for each unit."""
    lengths: tuple[Length, ...] = ()
    """Where its constants say how many units there are."""


@dataclass(frozen=True, eq=False)
class Sum:
    """An Add of a reader's output and of what comes by another way."""

    value: str
    """The sum."""
    other: str
    """The other addend."""


@dataclass(frozen=True, eq=False)
class Reader:
    """A node that sums over windows of the units: Conv with one group, Gemm or MatMul."""

    node: NodeProto
    value: str
    """The value that it reads."""
    weight: Port
    columns: Indices
    """For each unit, its columns in the weight as a matrix, outputs × columns (`reader_matrix`)."""
    made: str
    """Its result, with bias and with the constants that follow it (`scale`, `shift`)."""
    scale: FloatArray
    """made = scale · (W φ + bias) + shift, one number for each output."""
    shift: FloatArray
    bias: Port | None = None
    added: Sum | None = None
    """The sum that its result goes into, if nothing else reads the result."""
    padded: bool = False
    """Whether some of its windows reach beyond the border, where units count as 0."""

    @property
    def target(self) -> str:
        """The value whose change counts."""
        return self.added.value if self.added else self.made


@dataclass(frozen=True, eq=False)
class Axis:
    """Units, and every node that touches them."""

    name: str
    """The label of the producer, with a number added to it where two have the same."""
    units: int
    producer: Producer
    inner: tuple[Inner, ...]
    """In an order in which they can be computed."""
    readers: tuple[Reader, ...]
    values: dict[str, int] = field(default_factory=dict)
    """Hidden values, and which axis of each has the units."""
    flattened: dict[str, int] = field(default_factory=dict)
    """Hidden values that have a block of so many entries for each unit along that axis."""

    @property
    def hidden(self) -> list[str]:
        """All values that have the units."""
        return list(self.values)
