"""Losses of a model beside the original: their size, and how far they are to be trusted."""

from __future__ import annotations

import numpy as np
import pytest

from onnxfde.errors import DataError
from onnxfde.estimates import CAUTION, Estimate
from onnxfde.running.outputs import Output
from onnxfde.running.paired_losses import drop_loss, error_losses
from onnxfde.running.samples import Samples
from onnxfde.running.verification import measure
from tests.models import Array

NONE = Samples((), {}, "")


def outputs(rows: int, seed: int, noise: float = 0.1) -> tuple[Array, Array]:
    """Outputs of a model and of one that is a little different, not equally on all rows."""
    rng = np.random.default_rng(seed)
    old = rng.normal(size=(rows, 3))
    return old, old + noise * rng.normal(size=(rows, 3)) * rng.exponential(size=(rows, 1))


def error_loss(old: Array, new: Array) -> Estimate:
    found = measure(["y"], [Output(old)], [Output(new)], NONE, "")
    return error_losses(found.measured)[0]


def test_every_output_has_an_error_of_its_own() -> None:
    """The second output is a thousand times smaller, and changes three times as much."""
    old, new = outputs(200, 0)
    small = [Output(old / 1000), Output((old + 3 * (new - old)) / 1000)]
    found = measure(["a", "b"], [Output(old), small[0]], [Output(new), small[1]], NONE, "")
    losses = error_losses(found.measured)
    assert losses[0].value == pytest.approx(error_loss(old, new).value, rel=1e-12)
    assert losses[1].value == pytest.approx(3 * losses[0].value, rel=1e-9)
    assert found.verification.relative_l2 == losses[1].value


@pytest.mark.parametrize("kind", ["error", "drop", "rise"])
def test_the_standard_error_is_that_of_many_draws(kind: str) -> None:
    """Within a quarter of the spread of 300 draws."""

    def loss(seed: int) -> Estimate:
        old, new = outputs(150, seed)
        if kind == "error":
            return error_loss(old, new)
        if kind == "drop":
            return drop_loss([old], [new], old.argmax(axis=1))
        rng = np.random.default_rng(seed + 10_000)
        return drop_loss([old], [new], old + rng.normal(size=old.shape))

    found = [loss(seed) for seed in range(300)]
    spread = np.std([one.value for one in found])
    assert np.mean([one.error for one in found]) == pytest.approx(spread, rel=0.25)


def test_what_to_expect_elsewhere_grows_with_doubt() -> None:
    loss = Estimate(0.1, 100, 0.01)
    assert loss.expected(10**9) == pytest.approx(0.1 + CAUTION * 0.01, rel=1e-6)
    assert loss.expected(100) == pytest.approx(0.1 + CAUTION * 0.01 * np.sqrt(2), rel=1e-9)


def test_few_large_losses_call_for_more_caution() -> None:
    """The same mean and standard error, once from many rows and once from few."""
    even, few = Estimate(0.1, 100, 0.01), Estimate(0.1, 100, 0.01, lean=0.5)
    assert few.expected(100) > 1.1 * even.expected(100) - 0.01
    old = np.random.default_rng(0).normal(size=(400, 3))
    new = old + 0.01
    new[0] += 5
    assert error_loss(old, new).lean == pytest.approx(1.0, abs=0.1)


def test_lost_points_are_counted_row_by_row() -> None:
    old = np.eye(4)[[0, 1, 2, 3, 0]]
    new = np.eye(4)[[0, 1, 3, 3, 1]]
    labels = np.array([0, 1, 2, 3, 1])
    assert drop_loss([old], [new], labels).value == pytest.approx(100 * (4 - 4) / 5)
    assert drop_loss([old], [new], np.array([0, 1, 2, 3, 0])).value == pytest.approx(40)


def test_targets_give_the_rise_of_the_squared_error() -> None:
    old, wanted = np.array([[1.0], [2.0]]), np.array([2.0, 4.0])
    new = np.array([[0.5], [2.0]])
    assert drop_loss([old], [new], wanted).value == pytest.approx(100 * (6.25 / 5 - 1))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "needs labels or targets"),
        (np.array([1, 2, 3, 4]), "runs from 1 to 4, classes are counted from 0: subtract 1"),
        (np.array([0, 9, 1, 2]), "runs from 0 to 9, the classes are 0 to 3"),
        (np.zeros((4, 2)), "are 4×2, the model's output is 4×4"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels: Array | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        drop_loss([np.eye(4)], [np.eye(4)], labels)


def test_outputs_that_say_nothing_are_refused() -> None:
    same = np.ones((5, 2))
    with pytest.raises(DataError, match="the same for all rows"):
        error_loss(same, same)
    with pytest.raises(DataError, match="no floating-point numbers"):
        error_loss(np.arange(5), np.arange(5))
    with pytest.raises(DataError, match="makes no error"):
        drop_loss([np.ones((5, 1))], [np.ones((5, 1))], np.ones(5))


def test_rows_that_all_stay_right_do_not_prove_that_no_other_is_lost() -> None:
    """With no row lost of 100, one of 100 others may be: more than half a point."""
    same = np.eye(4)[np.arange(100) % 4]
    loss = drop_loss([same], [same], np.arange(100) % 4)
    assert loss.value == 0
    assert 0.5 < loss.expected(100) < 2
