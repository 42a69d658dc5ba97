"""What encryption and proofs cost, counted without an engine."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import onnxfde
from onnxfde.graph.encrypted_cost import Diagonals, EncryptedCost, OperationCounts, encrypted_cost
from onnxfde.graph.model import Graph
from onnxfde.numbers import Array
from tests.models import mlp, twins
from tests.polynomial_networks import NETWORKS, layers


def by_diagonals(found: Diagonals, x: Array, slots: int) -> Array:
    """The product of a matrix and repeated values, as a sequence of rotations."""
    values = np.tile(np.pad(x, (0, found.reads - len(x))), slots // found.reads)
    giant, total = found.giant_step, np.zeros(slots)
    for start in (0, *found.giant_steps):
        inside = np.zeros(slots)
        for k, diagonal in found.entries.items():
            if k - k % giant == start:
                moved = np.roll(np.tile(diagonal, slots // len(diagonal)), start)
                inside += moved * np.roll(values, -(k % giant))
        total += np.roll(inside, -start)
    for fold in found.folds:
        total = total + np.roll(total, -fold)
    return total


@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 9))
def test_diagonals_multiply_and_keep_the_period(rows: int, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=(rows, columns)) * rng.integers(0, 2, (rows, columns))
    x, found = rng.normal(size=columns), Diagonals(weight)
    result = by_diagonals(found, x, 64)
    wanted = np.pad(weight @ x, (0, found.makes - rows))
    np.testing.assert_allclose(result, np.tile(wanted, 64 // found.makes), rtol=0, atol=1e-12)


def test_a_layer_of_squares_is_counted() -> None:
    cost = encrypted_cost(Graph(NETWORKS["x²"]))
    assert cost == EncryptedCost(
        depth=3,
        batch=OperationCounts(3 * 5 + 5 * 2, 5, 0, 5 + 5 + 2),
        # 4 diagonals in steps of 2: 1 baby and 1 giant step; 2 of 8: 1 baby step, 2 folds
        vector=OperationCounts(4 + 2, 1, 2 + 3, 3),
        constraints=3 * 5 + 5 * 2 + 5,
    )


def test_zeros_cost_nothing_in_ciphertexts_but_count_in_a_circuit() -> None:
    cost = encrypted_cost(Graph(NETWORKS["pruned"]))
    assert cost is not None
    stored = {tensor.name: tensor for tensor in NETWORKS["pruned"].graph.initializer}
    arrays = [np.frombuffer(stored[name].raw_data, np.float32) for name in ("W", "V")]
    assert cost.batch.plain_multiplications == sum(map(np.count_nonzero, arrays))
    assert cost.constraints == sum(a.size for a in arrays) + 6


def test_another_activation_has_no_such_cost() -> None:
    assert encrypted_cost(Graph(layers("s = Relu(h)"))) is None
    assert onnxfde.inspect(layers("s = Relu(h)")).encrypted is None


def test_the_report_has_the_cost_before_and_after() -> None:
    report = onnxfde.optimize(mlp(*twins()), eps=0).report.to_dict()
    before, after = (report["encrypted"][place] for place in ("before", "after"))
    assert before["depth"] == after["depth"] == 3
    assert before["batch"]["ciphertext_multiplications"] == 6
    assert after["batch"]["ciphertext_multiplications"] == 3
    assert after["constraints"] < before["constraints"]
