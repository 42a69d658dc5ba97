"""The general engine: the paper's examples, ERODE's answers, and agreement with the fast path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onnxfde
from onnxfde import Partition, PolynomialSystem, encode, quotient, refine
from onnxfde.errors import AlgebraError
from onnxfde.lumping.partition import partition
from onnxfde.lumping.polynomial_system import layer_partition
from onnxfde.neurons.layer import Layer
from onnxfde.options import Linkage, Norm, Relation, Threshold

CASES = Path(__file__).parents[3] / "shared" / "erode" / "cases.json"


def three_variables(rate: float) -> PolynomialSystem:
    """The paper's ODE example; `rate` is the decay of x2 (1.00 exact, 1.05 perturbed)."""
    drift: dict[str, list[Any]] = {
        "x1": [("-5.00", {"x1": 1}), (1, {"x2": 1}), (1, {"x3": 1})],
        "x2": [("2.99", {"x1": 1}), (-rate, {"x2": 1})],
        "x3": [("2.01", {"x1": 1}), ("-1.00", {"x3": 1})],
    }
    return PolynomialSystem.from_terms(["x1", "x2", "x3"], drift)


START = [["x1"], ["x2", "x3"]]
JOINED = (("x1",), ("x2", "x3"))
APART = (("x1",), ("x2",), ("x3",))


def test_the_exact_example_is_an_fde() -> None:
    assert refine(three_variables(1.0), START, 0.0).blocks == JOINED


def test_the_perturbed_example_joins_at_005_and_not_below() -> None:
    assert refine(three_variables(1.05), START, 0.05).blocks == JOINED
    assert refine(three_variables(1.05), START, 0.0499).blocks == APART


def test_erode_counts_a_linear_gap_three_times() -> None:
    assert refine(three_variables(1.05), START, 0.15, semantics="erode").blocks == JOINED
    assert refine(three_variables(1.05), START, 0.1499, semantics="erode").blocks == APART


def terms(system: PolynomialSystem) -> dict[str, dict[str, float]]:
    return {
        name: {"·".join(f"{v}^{p}" for v, p in powers.items()): c for c, powers in found}
        for name, found in system.terms().items()
    }


@pytest.mark.parametrize(("rate", "own"), [(1.0, -1.0), (1.05, -1.025)])
def test_the_quotients_of_the_paper(rate: float, own: float) -> None:
    found = terms(quotient(three_variables(rate), Partition(JOINED)))
    assert found["x1"] == pytest.approx({"x1^1": -5.0, "x2+x3^1": 1.0}, rel=0, abs=1e-12)
    assert found["x2+x3"] == pytest.approx({"x1^1": 5.0, "x2+x3^1": own}, rel=0, abs=1e-12)


def test_the_working_example_as_a_system() -> None:
    layer = Layer(
        np.array([[1.0, 0.5, 0.1], [1.02, 0.48, 0.12]]), np.ones((1, 2)), np.array([0.58])
    )
    system, start = encode(layer), layer_partition(layer)
    assert start.blocks == (("x1",), ("x2",), ("h1", "h2"), ("o1",))
    assert terms(system)["h1"] == pytest.approx(
        {"": 0.01, "x1^1": 0.2, "x2^1": 0.1, "x1^2": 1.0, "x1^1·x2^1": 1.0, "x2^2": 0.25},
        rel=0,
        abs=1e-12,
    )
    joined = (("x1",), ("x2",), ("h1", "h2"), ("o1",))
    assert refine(system, start, 0.0).blocks == joined
    for eps, norm, together in (
        (0.0449, "max", True),
        (0.0447, "max", False),
        (0.1453, "sum", True),
        (0.1451, "sum", False),
    ):
        found = refine(system, start, eps, "backward", norm=norm)  # type: ignore[arg-type]
        assert (found.blocks == joined) == together
    summed = terms(quotient(system, Partition(joined)))
    assert summed["h1+h2"]["x1^2"] == pytest.approx(2.0404, rel=0, abs=1e-12)
    assert summed["o1"] == pytest.approx({"": 0.58, "h1+h2^1": 1.0}, rel=0, abs=1e-12)


def test_a_quadratic_pair_by_hand() -> None:
    """a x² + 2b xy + c y² gives |a−c| + 10|b−c| + 4|a−2b+c| in one direction."""
    a, b, c = 1.0, 0.3, 0.8
    drift = {"z": [(a, {"x": 2}), (2 * b, {"x": 1, "y": 1}), (c, {"y": 2})]}
    system = PolynomialSystem.from_terms(["x", "y", "z"], drift)
    one = abs(a - c) + 10 * abs(b - c) + 4 * abs(a - 2 * b + c)
    other = abs(c - a) + 10 * abs(b - a) + 4 * abs(a - 2 * b + c)
    gap = max(one, other)
    for eps, blocks in ((gap, 2), (gap - 1e-6, 3)):
        assert len(refine(system, [["z"], ["x", "y"]], eps, semantics="erode").blocks) == blocks
    plain = max(abs(a - c) + abs(2 * b - 2 * c), abs(c - a) + abs(2 * b - 2 * a))
    for eps, blocks in ((plain, 2), (plain - 1e-6, 3)):
        assert len(refine(system, [["z"], ["x", "y"]], eps).blocks) == blocks


def test_blocks_are_split_until_nothing_changes() -> None:
    """z depends on y, and y on x: splitting x splits y, which splits z."""
    drift: dict[str, list[Any]] = {
        "y1": [(1, {"x1": 1})],
        "y2": [(1, {"x2": 1})],
        "z1": [(1, {"y1": 1})],
        "z2": [(1, {"y2": 1})],
        "x1": [(2, {})],
    }
    names = ["x1", "x2", "y1", "y2", "z1", "z2"]
    system = PolynomialSystem.from_terms(names, drift)
    start = [["x1", "x2"], ["y1", "y2"], ["z1", "z2"]]
    assert len(refine(system, start, 1.0, "backward").blocks) == 6
    assert len(refine(system, start, 2.0, "backward").blocks) == 3


@pytest.mark.skipif(not CASES.exists(), reason="ERODE's reference cases are not here")
def test_erode_s_partitions_are_reproduced() -> None:
    wrong, sensitive = [], []
    for case in json.loads(CASES.read_text()):
        drift = {v: [(c, p) for c, p in found] for v, found in case["drift"].items()}
        relation: Relation = "forward" if case["kind"] == "fde" else "backward"

        def blocks(
            names: list[str], case: Any = case, drift: Any = drift, rel: Any = relation
        ) -> Any:
            system = PolynomialSystem.from_terms(names, drift)
            found = refine(system, case["initial_partition"], case["eps"], rel, "erode")
            return {frozenset(block) for block in found.blocks}

        found = blocks(case["variables"])
        assert found == blocks(case["variables"][::-1])
        agrees = found == {frozenset(block) for block in case["partition"]}
        if case["order_sensitive"]:
            sensitive.append(agrees)
        elif not agrees:
            wrong.append(case["name"])
    assert wrong == []
    assert (sum(sensitive), len(sensitive)) == (7, 14)


@st.composite
def small_layers(draw: st.DrawFn) -> Layer:
    """Weights on a coarse grid, so that ties and equal neurons occur."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    inputs, neurons, outputs = (draw(st.integers(1, most)) for most in (3, 7, 3))
    step = draw(st.sampled_from([0.5, 0.05]))
    incoming = np.round(rng.uniform(-1, 1, (neurons, inputs + 1)) / step) * step
    outgoing = np.round(rng.uniform(-1, 1, (outputs, neurons)) / step) * step
    outgoing[:, 0] *= draw(st.sampled_from([1.0, 1e9]))
    incoming[0] *= draw(st.sampled_from([1.0, 3e3]))
    return Layer(incoming, outgoing, rng.normal(size=outputs))


@settings(max_examples=150)
@given(
    small_layers(),
    st.floats(0, 2),
    st.sampled_from(["forward", "backward"]),
    st.sampled_from(
        [
            ("paper", "sum", "closure"),
            ("paper", "max", "closure"),
            ("paper", "sum", "diameter"),
            ("paper", "max", "diameter"),
            ("erode", "sum", "closure"),
        ]
    ),
)
def test_the_fast_path_for_layers_agrees_with_the_general_engine(
    layer: Layer, eps: float, relation: Relation, rule: tuple[Threshold, Norm, Linkage]
) -> None:
    semantics, norm, linkage = rule
    system, start = encode(layer), layer_partition(layer)
    found = refine(system, start, eps, relation, semantics, norm, linkage)
    slow = {frozenset(b) for b in found.blocks if b[0].startswith("h")}
    fast = partition(layer, eps, relation, norm, linkage, erode=semantics == "erode")
    named = {frozenset(f"h{i + 1}" for i in block) for block in fast}
    assert named == slow


def test_tied_diameters_are_cut_alike_by_both_engines() -> None:
    outgoing = np.array(
        [
            [0.5, -0.5, 0.5, 0.0, -0.5, 0.0, -1.0],
            [-1.0, 0.5, 0.5, 0.0, 0.0, 1.0, 1.0],
            [0.5, 0.5, 0.5, 0.0, -0.5, 0.5, 0.0],
        ]
    )
    layer = Layer(np.ones((7, 2)), outgoing, np.zeros(3))
    slow = refine(encode(layer), layer_partition(layer), 0.5, linkage="diameter").blocks
    fast = partition(layer, 0.5, linkage="diameter")
    assert {b for b in slow if b[0][0] == "h"} == {tuple(f"h{i + 1}" for i in b) for b in fast}


@pytest.mark.parametrize(
    ("drift", "message"),
    [
        ({"z": [(1, {})]}, "'z' has a drift but is not a variable"),
        ({"x": [(1, {"w": 1})]}, "uses 'w', which is not a variable"),
        ({"x": [(1, {"y": -1})]}, "has y to the power -1"),
        ({"x": [(1, {"y": 0.5})]}, "has y to the power 0.5"),
        ({"x": [(float("nan"), {"y": 1})]}, "a coefficient in the drift of 'x' is nan"),
        ({"x": [("many", {"y": 1})]}, "'many' in the drift of 'x' is not a number"),
        ({"x": [(None, {"y": 1})]}, "'None' in the drift of 'x' is not a number"),
        ({"x": [(1, {"y": float("nan")})]}, "has y to the power nan"),
        ({"x": [(1, {"y": float("inf")})]}, "has y to the power inf"),
        ({"x": [(1, {"y": "2"})]}, "has y to the power 2"),
    ],
)
def test_bad_systems_are_named(drift: Any, message: str) -> None:
    with pytest.raises(AlgebraError) as error:
        PolynomialSystem.from_terms(["x", "y"], drift)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([["x"]], "misses the variable 'y'"),
        ([["x", "y"], ["y"]], "repeats the variable 'y'"),
        ([["x", "y", "z"]], "names 'z', which is not a variable"),
        (["xy"], "a block is a list of variables, not the name 'xy'"),
    ],
)
def test_bad_partitions_are_named(blocks: list[list[str]], message: str) -> None:
    system = PolynomialSystem.from_terms(["x", "y"], {})
    with pytest.raises(AlgebraError, match=message):
        refine(system, blocks, 0.0)


def test_bad_thresholds_and_repeated_variables_are_refused() -> None:
    with pytest.raises(AlgebraError, match="listed twice"):
        PolynomialSystem.from_terms(["x", "x"], {})
    system = PolynomialSystem.from_terms(["x", "y"], {})
    for eps in (-1.0, float("nan")):
        with pytest.raises(AlgebraError, match="is not a number ≥ 0"):
            refine(system, [["x", "y"]], eps)
    with pytest.raises(AlgebraError, match="ERODE always sums"):
        refine(system, [["x", "y"]], 0.0, "backward", "erode", "max")
    for choice in ({"semantics": "other"}, {"relation": "sideways"}):
        with pytest.raises(AlgebraError, match="is not one of"):
            refine(system, [["x", "y"]], 0.0, **choice)  # type: ignore[arg-type]


def test_equal_monomials_add_up_and_vanish_when_they_cancel() -> None:
    drift: Any = {"x": [("0.1", {"y": 2}), (0.2, {"y": 2}), (1, {"x": 1}), (-1, {"x": 1})]}
    system = PolynomialSystem.from_terms(["x", "y"], drift)
    assert terms(system)["x"] == pytest.approx({"y^2": 0.3}, rel=0, abs=1e-12)
    assert system.coefficients.shape == (2, 1)


def test_a_quotient_of_any_degree_follows_the_block_sums() -> None:
    """On states where all members of a block are equal, the quotient's drift is the summed one."""
    rng = np.random.default_rng(0)
    names = [f"v{i}" for i in range(5)]
    drift = {
        name: [
            (
                float(rng.normal()),
                {str(k): int(p) for k, p in zip(names, rng.integers(0, 3, 5), strict=True)},
            )
            for _ in range(4)
        ]
        for name in names
    }
    system = PolynomialSystem.from_terms(names, drift)
    blocks = Partition((("v0", "v3"), ("v1",), ("v2", "v4")))
    reduced = quotient(system, blocks)
    y = rng.uniform(0.5, 1.5, 3)
    state = {"v0": y[0] / 2, "v3": y[0] / 2, "v1": y[1], "v2": y[2] / 2, "v4": y[2] / 2}
    x = np.array([state[name] for name in names])
    full = system.coefficients @ np.prod(x**system.exponents, axis=1)
    small = reduced.coefficients @ np.prod(y**reduced.exponents, axis=1)
    np.testing.assert_allclose(
        small, [full[0] + full[3], full[1], full[2] + full[4]], rtol=1e-12, atol=0
    )


def test_erode_in_a_model() -> None:
    from onnxfde.demo import demo_model

    paper = onnxfde.optimize(demo_model(), 0.15, semantics="paper", verify=False).report.layers[0]
    erode = onnxfde.optimize(demo_model(), 0.15, semantics="erode", verify=False).report.layers[0]
    assert paper.neurons_after < erode.neurons_after


def test_the_names_of_block_sums_are_unique() -> None:
    system = PolynomialSystem.from_terms(["a", "b", "a+b"], {"a": [(1, {"a+b": 1})]})
    reduced = quotient(system, Partition((("a", "b"), ("a+b",))))
    assert set(reduced.variables) == {"a+b", "(a+b)"}
