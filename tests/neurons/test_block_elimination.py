"""Units that are blocks of features, dropped one after the other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxfde.neurons import block_elimination
from onnxfde.neurons.block_elimination import Moments, eliminate_units
from onnxfde.numbers import FloatArray, Indices


@dataclass(frozen=True, eq=False)
class Example:
    """Features, targets and columns of a reader, in rows."""

    features: FloatArray
    targets: FloatArray
    columns: Indices
    prior: FloatArray | None = None
    strength: float = 1e-6

    @property
    def moments(self) -> Moments:
        rows = np.column_stack([self.features, np.ones(len(self.features))])
        centred = self.targets - self.targets.mean(axis=0)
        return Moments(
            rows.T @ rows / len(rows),
            rows.T @ self.targets / len(rows),
            float((self.targets**2).sum()) / len(rows),
            float((centred**2).sum()) / len(rows),
            self.columns,
            prior=self.prior,
            strength=self.strength,
        )

    def fitted(self, kept: Indices) -> tuple[FloatArray, FloatArray]:
        """Weights and bias by least squares on rows, with a row for each number of the prior."""
        size, chosen = len(self.features), self.columns[kept].ravel()
        squares = np.mean(self.features**2, axis=0)
        squares = np.maximum(squares, 1e-3 * squares.mean())
        roots = np.sqrt(size * self.strength * squares[chosen])
        known = np.zeros((len(chosen), self.targets.shape[1]))
        known = known if self.prior is None else self.prior[:, chosen].T
        rows = np.column_stack([self.features[:, chosen], np.ones(size)])
        pull = np.column_stack([np.diag(roots), np.zeros(len(roots))])
        found = np.linalg.lstsq(
            np.vstack([rows, pull]), np.vstack([self.targets, roots[:, None] * known]), rcond=None
        )[0]
        return found[:-1].T, found[-1]

    def error(self, kept: Indices) -> float:
        """The squared error of that fit, relative to the target's own."""
        weights, bias = self.fitted(kept)
        rest = self.targets - self.features[:, self.columns[kept].ravel()] @ weights.T - bias
        return float((rest**2).sum() / self.spread)

    def cost(self, kept: Indices) -> float:
        """The same with what it pays for weights other than the prior, 0 where units are gone."""
        if self.prior is None:
            return self.error(kept)
        change, squares = -self.prior.T.copy(), np.mean(self.features**2, axis=0)
        change[self.columns[kept].ravel()] += self.fitted(kept)[0].T
        paid = np.maximum(squares, 1e-3 * squares.mean()) @ np.sum(change**2, axis=1)
        return self.error(kept) + float(len(self.features) * self.strength * paid / self.spread)

    @property
    def spread(self) -> float:
        return float(((self.targets - self.targets.mean(axis=0)) ** 2).sum())


def example(rng: np.random.Generator, units: int, block: int, outputs: int) -> Example:
    """Features with offsets, partly combinations of each other; blocks lie scattered."""
    size = units * block
    few = rng.normal(size=(5 * size + 20, max(size // 2, 1)))
    features = few @ rng.normal(size=(few.shape[1], size)) + rng.normal(size=size)
    features = np.maximum(features + 0.2 * rng.normal(size=features.shape), 0.0)
    scales = np.exp(2 * rng.normal(size=size))
    targets = features @ (scales[:, None] * rng.normal(size=(size, outputs))) + 3.0
    targets += 0.1 * rng.normal(size=targets.shape) * (targets.std() or 1.0)
    prior = rng.normal(size=(outputs, size)) / scales if rng.random() < 0.7 else None
    strength = 10 ** rng.uniform(-6, 1)
    return Example(features, targets, rng.permutation(size).reshape(units, block), prior, strength)


@st.composite
def examples(draw: st.DrawFn) -> list[Example]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    units = draw(st.integers(1, 6))
    blocks = draw(st.lists(st.sampled_from([1, 4, 9]), min_size=1, max_size=3))
    return [example(rng, units, block, int(rng.integers(1, 4))) for block in blocks]


def brute_force(readers: list[Example], kept: Indices) -> float:
    return float(np.sqrt(sum(reader.error(kept) for reader in readers)))


@pytest.fixture(params=["one by one", "in steps"])
def steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "in steps":
        monkeypatch.setattr(block_elimination, "FEW_FEATURES", 0)
        monkeypatch.setattr(block_elimination, "SHARE_PER_STEP", 0.5)
    return str(request.param)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(readers=examples())
def test_the_error_of_every_count_is_that_of_least_squares(
    steps: str, readers: list[Example]
) -> None:
    """Within a step the part of the prior is not known exactly, so it is weak there."""
    if steps == "in steps":
        readers = [replace(reader, strength=1e-6) for reader in readers]
    found = eliminate_units([reader.moments for reader in readers])
    units = len(readers[0].columns)
    assert sorted(found.order) == list(range(units))
    squares = [brute_force(readers, found.order[:count]) ** 2 for count in range(units + 1)]
    wanted = np.maximum.accumulate(squares[::-1])[::-1]
    rough = 1e-9 if steps == "one by one" else 1e-5
    np.testing.assert_allclose(found.errors**2, wanted, rtol=1e-5, atol=rough)
    assert (np.diff(found.errors) <= 0).all()


@settings(max_examples=25)
@given(examples())
def test_the_first_to_go_is_the_one_that_costs_least(readers: list[Example]) -> None:
    units = len(readers[0].columns)
    found = eliminate_units([reader.moments for reader in readers])
    others = [np.delete(np.arange(units), j) for j in range(units)]
    without = [sum(reader.cost(kept) for reader in readers) for kept in others]
    assert without[found.order[-1]] <= min(without) * (1 + 1e-6) + 1e-9


@settings(max_examples=25)
@given(examples(), st.randoms(use_true_random=False))
def test_a_refit_is_the_ridge_fit_to_the_rows(readers: list[Example], random: object) -> None:
    reader = readers[0]
    units = len(reader.columns)
    kept = np.sort(random.sample(range(units), random.randint(1, units)))  # type: ignore[attr-defined]
    weights, bias = reader.moments.refit(kept)
    wanted, wanted_bias = reader.fitted(kept)
    scale = np.abs(wanted).max() + np.abs(wanted_bias).max()
    np.testing.assert_allclose(weights, wanted, rtol=0, atol=1e-7 * scale)
    np.testing.assert_allclose(bias, wanted_bias, rtol=0, atol=1e-7 * scale)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 4]))
@pytest.mark.usefixtures("steps")
def test_of_two_equal_units_only_one_goes_for_nothing(seed: int, block: int) -> None:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(400, 4 * block))
    twins = np.tile(features, 2)
    targets = twins @ rng.normal(size=(8 * block, 3))
    found = eliminate_units([Example(twins, targets, np.arange(8 * block).reshape(8, -1)).moments])
    assert {unit % 4 for unit in found.order[:4]} == {0, 1, 2, 3}
    assert found.errors[4] < 1e-2 < 5e-2 < found.errors[3]


def test_errors_are_exact_in_large_matrices_too() -> None:
    reader = example(np.random.default_rng(3), 130, 9, 20)
    found = eliminate_units([reader.moments])
    for count in (97, 20):
        exact = np.sqrt(reader.error(found.order[:count]))
        assert found.errors[count] == pytest.approx(exact, rel=1e-5)


def test_units_without_any_signal_are_no_obstacle() -> None:
    zeros = Moments(np.diag([0.0, 0.0, 1.0]), np.zeros((3, 2)), 0.0, 1.0, np.array([[0], [1]]))
    found = eliminate_units([zeros])
    assert (found.errors == 0).all()
    assert (zeros.refit(np.array([1]))[0] == 0).all()
