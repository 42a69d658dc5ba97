"""Polynomial ODE systems in monomial normal form, and their quotients.

    x_k' = q_k(x) = Σ_α C[k, α] x^α        C: variables × monomials (sparse), α: rows of exponents

The quotient under a partition is the system of the block sums y_B = Σ_{k∈B} x_k: right-hand sides
are summed over each block, and every member is replaced by y_B / |B|. It is exact if the partition
is an FDE.

`encode` is the paper's encoding of a layer: x' = 0, h_i' = (u_i·z)², o_k' = c_k + Σ_i V_ki h_i.
Its refinement starts from `layer_partition`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from onnxfde.errors import AlgebraError
from onnxfde.neurons.layer import Layer
from onnxfde.numbers import FloatArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

IntArray = npt.NDArray[np.int64]
Term = tuple[float | str, Mapping[str, int]]


@dataclass(frozen=True)
class Partition:
    """Blocks of variables, in the order of the system's variables."""

    blocks: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, blocks: Iterable[Iterable[str]], variables: Sequence[str]) -> Partition:
        """Check that every variable is in one block, and put the blocks in order."""
        position = {name: i for i, name in enumerate(variables)}
        members = [names_in(block) for block in blocks]
        for name in (name for block in members for name in block):
            if name not in position:
                raise AlgebraError(f"the partition names '{name}', which is not a variable")
        seen = Counter(name for block in members for name in block)
        for name in variables:
            if seen[name] != 1:
                what = "misses" if not seen[name] else "repeats"
                raise AlgebraError(f"the partition {what} the variable '{name}'")
        inside = (tuple(sorted(block, key=position.__getitem__)) for block in members if block)
        return cls(tuple(sorted(inside, key=lambda block: position[block[0]])))


def names_in(block: Iterable[str]) -> list[str]:
    """The variables of a block; a string is refused, because its letters would be taken."""
    if isinstance(block, str):
        raise AlgebraError(f"a block is a list of variables, not the name '{block}'")
    return list(block)


@dataclass(frozen=True, eq=False)
class PolynomialSystem:
    """Variables, monomials (rows of `exponents`) and the coefficients of each right-hand side."""

    variables: tuple[str, ...]
    exponents: IntArray
    coefficients: csr_array

    @classmethod
    def from_terms(
        cls, variables: Sequence[str], drift: Mapping[str, Iterable[Term]]
    ) -> PolynomialSystem:
        """Read `{variable: [(coefficient, {variable: power, …}), …]}`; a missing drift is 0.

        >>> system = PolynomialSystem.from_terms(["x", "y"], {"x": [("2.5", {"x": 1, "y": 2})]})
        >>> system.terms()["x"]
        [(2.5, {'x': 1, 'y': 2})]
        """
        index = {name: i for i, name in enumerate(variables)}
        if len(index) != len(variables):
            raise AlgebraError("a variable is listed twice")
        rows: list[int] = []
        values: list[float] = []
        exponents: list[IntArray] = []
        for variable, terms in drift.items():
            if variable not in index:
                raise AlgebraError(f"'{variable}' has a drift but is not a variable")
            for coefficient, powers in terms:
                rows.append(index[variable])
                values.append(finite_coefficient(coefficient, variable))
                exponents.append(exponent_row(powers, index, variable))
        table = np.array(exponents, dtype=np.int64).reshape(len(rows), len(variables))
        return collected_terms(
            tuple(variables), np.array(rows, dtype=np.int64), np.array(values), table
        )

    def terms(self) -> dict[str, list[tuple[float, dict[str, int]]]]:
        """The system in the form `from_terms` reads."""
        found: dict[str, list[tuple[float, dict[str, int]]]] = {name: [] for name in self.variables}
        matrix = self.coefficients.tocoo()
        for row, column, value in zip(matrix.row, matrix.col, matrix.data, strict=True):
            powers = {
                self.variables[i]: int(self.exponents[column, i])
                for i in np.flatnonzero(self.exponents[column])
            }
            found[self.variables[row]].append((float(value), powers))
        return found


def finite_coefficient(coefficient: float | str, variable: str) -> float:
    """A coefficient as a finite number."""
    try:
        value = float(coefficient)
    except (TypeError, ValueError):
        raise AlgebraError(
            f"'{coefficient}' in the drift of '{variable}' is not a number"
        ) from None
    if not np.isfinite(value):
        raise AlgebraError(f"a coefficient in the drift of '{variable}' is {value}")
    return value


def exponent_row(powers: Mapping[str, int], index: Mapping[str, int], variable: str) -> IntArray:
    """The exponents of one monomial."""
    row = np.zeros(len(index), dtype=np.int64)
    for name, power in powers.items():
        if name not in index:
            raise AlgebraError(f"the drift of '{variable}' uses '{name}', which is not a variable")
        if not isinstance(power, int | float | np.integer) or not power >= 0 or power % 1:
            raise AlgebraError(f"the drift of '{variable}' has {name} to the power {power}")
        row[index[name]] = int(power)
    return row


def collected_terms(
    variables: tuple[str, ...], rows: IntArray, values: FloatArray, exponents: IntArray
) -> PolynomialSystem:
    """Add up equal monomials and drop those that cancel."""
    from scipy.sparse import csr_array

    monomials, column = np.unique(exponents, axis=0, return_inverse=True)
    shape = (len(variables), len(monomials))
    matrix = csr_array((values, (rows, column.reshape(-1))), shape=shape)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    used = np.unique(matrix.indices)
    return PolynomialSystem(variables, monomials[used], csr_array(matrix[:, used]))


def quotient(system: PolynomialSystem, partition: Partition) -> PolynomialSystem:
    """The system of the block sums; a block is named after its members, joined by `+`."""
    partition = Partition.of(partition.blocks, system.variables)
    member = membership(system.variables, partition)
    sizes = np.bincount(member)
    matrix = system.coefficients.tocoo()
    indicator = np.eye(len(sizes), dtype=np.int64)[member]
    exponents = system.exponents @ indicator
    share = np.prod(sizes[None, :] ** -exponents.astype(float), axis=1)
    names = block_names(partition)
    values = matrix.data * share[matrix.col]
    return collected_terms(names, member[matrix.row], values, exponents[matrix.col])


def block_names(partition: Partition) -> tuple[str, ...]:
    """Names for block sums, all different."""
    names: list[str] = []
    for block in sorted(partition.blocks, key=len):
        name = "+".join(block)
        while name in names:
            name = f"({name})"
        names.append(name)
    known = dict(zip(sorted(partition.blocks, key=len), names, strict=True))
    return tuple(known[block] for block in partition.blocks)


def membership(variables: Sequence[str], partition: Partition) -> IntArray:
    """The index of each variable's block."""
    home = {name: i for i, block in enumerate(partition.blocks) for name in block}
    return np.array([home[name] for name in variables], dtype=np.int64)


def layer_variables(layer: Layer) -> tuple[list[str], list[str], list[str]]:
    """The names of the inputs, neurons and outputs of a layer."""
    counts = (("x", layer.inputs), ("h", layer.neurons), ("o", layer.outputs))
    inputs, hidden, outputs = ([f"{n}{i + 1}" for i in range(count)] for n, count in counts)
    return inputs, hidden, outputs


def layer_partition(layer: Layer) -> Partition:
    """The initial partition of a layer: each input and output alone, all neurons in one block."""
    inputs, hidden, outputs = layer_variables(layer)
    blocks = ([name] for name in (*inputs, *outputs))
    return Partition.of([*blocks, hidden], [*inputs, *hidden, *outputs])


def encode(layer: Layer) -> PolynomialSystem:
    """The paper's encoding of a (small) layer."""
    inputs, hidden, outputs = layer_variables(layer)
    drift: dict[str, list[Term]] = {}
    for name, row in zip(hidden, layer.incoming, strict=True):
        factors = list(zip([*inputs, ""], row, strict=True))
        drift[name] = [(float(a * b), monomial_of(p, q)) for p, a in factors for q, b in factors]
    for name, column, offset in zip(outputs, layer.outgoing, layer.offset, strict=True):
        linear: list[Term] = [(float(v), {h: 1}) for h, v in zip(hidden, column, strict=True)]
        drift[name] = [*linear, (float(offset), {})]
    return PolynomialSystem.from_terms([*inputs, *hidden, *outputs], drift)


def monomial_of(first: str, second: str) -> dict[str, int]:
    """The product of two variables; "" stands for 1."""
    powers: dict[str, int] = {}
    for name in filter(None, (first, second)):
        powers[name] = powers.get(name, 0) + 1
    return powers
