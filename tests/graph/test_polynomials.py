"""Polynomials of degree 2 between affine maps, in every spelling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onnxfde
from onnxfde.graph.edit import write_layer
from onnxfde.graph.magnitude import magnitude_model
from onnxfde.graph.match import find_layers
from onnxfde.graph.model import Graph
from onnxfde.graph.polynomials import polynomial_of
from onnxfde.graph.protos import ModelProto
from onnxfde.graph.regions import region_behind
from onnxfde.numbers import ROUNDING_STEPS, ROUNDOFF
from tests.models import Array, build, outputs_of, shapes
from tests.polynomial_models import (
    CHEAP,
    COSTLY,
    DISTINCT,
    GEMMS,
    KINDS,
    operators,
    polynomial_layer,
)

X = np.random.default_rng(1).uniform(-1, 1, (200, 3))


def steps_apart(model: ModelProto, other: ModelProto, kind: str) -> float:
    """The largest difference of two models in onnxruntime, in roundoffs of A + |y|."""
    magnitude = magnitude_model(Graph(model))
    assert magnitude is not None
    x = X.astype(KINDS[kind])
    runs = ((model, x), (other, x), (magnitude, np.abs(x)))
    before, after, size = (outputs_of(m, a)[0].astype(np.float64) for m, a in runs)
    unit = ROUNDOFF[np.dtype(KINDS[kind]).name]
    return float(np.max(np.abs(after - before) / (unit * (size + np.abs(before)))))


@pytest.mark.parametrize("kind", ["float", "float16", "double", "bfloat16"])
@pytest.mark.parametrize("spelling", CHEAP)
def test_twins_are_merged_up_to_rounding(spelling: str, kind: str) -> None:
    model = polynomial_layer(CHEAP[spelling], kind)
    result = onnxfde.optimize(model, eps=0)
    (layer,) = result.report.layers
    assert (layer.neurons_before, layer.neurons_after) == (2 * DISTINCT, DISTINCT)
    assert operators(result.model) == ["Gemm", "Mul", "Gemm"]
    assert steps_apart(model, result.model, kind) <= ROUNDING_STEPS
    assert result.report.verification is not None
    engine = "reference" if kind == "bfloat16" else "onnxruntime"
    assert engine in result.report.verification.engine


@pytest.mark.parametrize("spelling", [*CHEAP, *COSTLY])
def test_a_larger_error_leaves_fewer_neurons(spelling: str) -> None:
    result = onnxfde.optimize(polynomial_layer((CHEAP | COSTLY)[spelling]), eps=0.3)
    assert result.report.layers[0].neurons_after < DISTINCT
    assert result.report.verification is not None
    assert (result.report.verification.relative_l2 or 0) < 0.4


@pytest.mark.parametrize("spelling", [*CHEAP, *COSTLY])
def test_the_layer_that_is_read_computes_what_the_graph_does(spelling: str) -> None:
    model = polynomial_layer((CHEAP | COSTLY)[spelling], "double")
    (match,), refused = find_layers(Graph(model))
    assert not refused
    np.testing.assert_allclose(match.layer(X), outputs_of(model, X)[0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", ["float", "float16", "bfloat16"])
@pytest.mark.parametrize("spelling", COSTLY)
def test_a_square_that_would_cost_accuracy_is_not_completed(spelling: str, kind: str) -> None:
    model = polynomial_layer(COSTLY[spelling], kind)
    result = onnxfde.optimize(model, eps=0)
    assert result.report.layers[0].neurons_after == DISTINCT
    assert steps_apart(model, result.model, kind) <= ROUNDING_STEPS


def test_completing_that_square_costs_more_than_rounding() -> None:
    model = polynomial_layer(COSTLY["1e-4·x² + x"])
    graph = Graph(model).copied()
    (match,), _ = find_layers(graph)
    write_layer(graph, match, match.layer)
    assert operators(graph.model) == ["Gemm", "Mul", "Gemm"]
    assert steps_apart(model, graph.model, "float") > 20 * ROUNDING_STEPS


def test_where_it_is_not_completed_only_rows_change() -> None:
    model = polynomial_layer(COSTLY["1e-4·x² + x"])
    result = onnxfde.optimize(model, eps=0)
    assert [n.SerializeToString() for n in result.model.graph.node] == [
        n.SerializeToString() for n in model.graph.node
    ]
    before, after = shapes(model), shapes(result.model)
    assert {name for name in before if before[name] != after[name]} == {"W", "b", "V"}
    (tiny,) = [t for t in result.model.graph.initializer if t.name == "tiny"]
    assert tiny in model.graph.initializer


def test_where_coefficients_differ_it_becomes_a_product_with_one_shift() -> None:
    model = polynomial_layer(COSTLY["1e-4·x² + x per feature"])
    result = onnxfde.optimize(model, eps=0)
    assert operators(result.model) == ["Gemm", "Add", "Mul", "Gemm"]
    assert shapes(result.model)["h_shift"] == []
    assert "tinies" not in shapes(result.model)


def test_in_double_such_a_layer_stays_unless_an_error_is_allowed() -> None:
    """Its square cannot be completed in float64 without losing more than float64's rounding."""
    model = polynomial_layer(COSTLY["1e-4·x² + x"], "double")
    assert onnxfde.optimize(model, eps=0).report.layers[0].neurons_after == 2 * DISTINCT
    assert onnxfde.optimize(model, eps=1e-9).report.layers[0].neurons_after == DISTINCT


def test_the_polynomial_becomes_one_node_with_the_name_of_its_last() -> None:
    body = "[sq] q = Mul(h, h) [twice] d = Mul(q, two) [all] s = Add(d, h)"
    result = onnxfde.optimize(polynomial_layer(body), eps=0)
    square = result.model.graph.node[1]
    assert (square.name, list(square.input), list(square.output)) == ("all", ["h", "h"], ["s"])
    assert shapes(result.model).keys() == {"W", "b", "V", "c"}


def test_a_constant_that_something_else_reads_stays() -> None:
    model = polynomial_layer("q = Add(h, k) s = Mul(q, h)")
    model.graph.node.append(build("z = Identity(k)", "float[6] k", "float[6] z").graph.node[0])
    model.graph.output.append(build("z = Identity(x)", outputs="float[6] z").graph.output[0])
    result = onnxfde.optimize(model, eps=0)
    assert result.report.layers[0].neurons_after == DISTINCT
    assert shapes(result.model)["k"] == [6]


def test_two_layers_in_a_chain_are_both_merged() -> None:
    rng = np.random.default_rng(4)
    sizes = {"W": (3, 4), "b": (4,), "M": (8, 3), "d": (3,)}
    drawn = {n: rng.normal(size=shape).astype(np.float32) for n, shape in sizes.items()}
    doubled: dict[str, Any] = {n: np.concatenate([a, a], axis=-1) for n, a in drawn.items()}
    model = build(
        "h = MatMul(x, W) g = Add(h, b) p = Mul(g, g) s = Add(g, p) k = MatMul(s, M) "
        "n = Add(k, d) q = Add(n, one) t = Mul(n, q) y = MatMul(t, V)",
        **doubled,
        V=rng.normal(size=(6, 2)).astype(np.float32),
        one=np.float32(1),
    )
    x = X.astype(np.float32)
    result = onnxfde.optimize(model, eps=0)
    assert [layer.neurons_after for layer in result.report.layers] == [4, 3]
    assert operators(result.model) == [
        "MatMul",
        "Add",
        "Mul",
        "MatMul",
        "Add",
        "Mul",
        "MatMul",
        "Add",
    ]
    before, after = outputs_of(model, x)[0], outputs_of(result.model, x)[0]
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-5 * np.abs(before).max())


def test_features_on_the_second_last_axis() -> None:
    """MatMul with the weight on the left, normalized along its features."""
    rng = np.random.default_rng(2)
    w = np.tile(rng.normal(size=(3, 4)), (2, 1))
    model = build(
        "h = MatMul(W, x) n = BatchNormalization(h, k, l, l, k) p = Mul(n, n) s = Add(p, n) "
        "y = MatMul(V, s)",
        inputs="float[N,4,5] x",
        outputs="float[N,2,5] y",
        W=w.astype(np.float32),
        k=np.tile(rng.uniform(0.5, 2, 3), 2).astype(np.float32),
        l=np.tile(rng.normal(size=3), 2).astype(np.float32),
        V=rng.normal(size=(2, 6)).astype(np.float32),
    )
    result = onnxfde.optimize(model, eps=0)
    assert result.report.layers[0].neurons_after == 3
    assert operators(result.model) == ["MatMul", "Add", "Mul", "MatMul", "Add"]
    assert result.report.verification is not None
    assert (result.report.verification.relative_l2 or 0) < 1e-6


def test_normalization_between_two_maps_is_folded_with_them() -> None:
    model = polynomial_layer("s = BatchNormalization(h, k, l, m, var)")
    result = onnxfde.optimize(model)
    assert operators(result.model) == ["Gemm"]
    assert steps_apart(model, result.model, "float") <= ROUNDING_STEPS


@pytest.mark.parametrize("position", [0, 1])
def test_only_what_is_written_differently_changes(position: int) -> None:
    """The same polynomial, with its constant on either side, gives the same weights."""
    sides = ("one, q", "q, one")
    model = polynomial_layer(f"q = Mul(h, h) p = Add({sides[position]}) s = Add(h, p)")
    other = polynomial_layer("q = Mul(h, h) p = Add(h, one) s = Add(p, q)")
    found = [onnxfde.optimize(m, eps=0).model.graph.initializer for m in (model, other)]
    assert list(found[0]) == list(found[1])


class Trees:
    """Random polynomials as nodes; each method returns the name of a value."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw, self.nodes, self.constants = draw, list[str](), dict[str, Array]()

    def node(self, text: str) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(f"{name} = {text}")
        return name

    def constant(self) -> str:
        name = f"c{len(self.constants)}"
        shape = self.draw(st.sampled_from([(), (1,), (4,), (1, 4), (1, 1)]))
        numbers = st.sampled_from([-3.0, -0.7, 0.25, 1.0, 2.5])
        drawn = [self.draw(numbers) for _ in range(int(np.prod(shape)))]
        self.constants[name] = np.asarray(drawn).reshape(shape)
        return name

    def tree(self, degree: int, depth: int) -> str:
        if depth == 0:
            return "h" if degree == 1 else self.node("Mul(h, h)")
        kinds = ["Add", "Sub", "Div", "Neg", "constant", "either side", "Identity", "Sum"]
        match self.draw(st.sampled_from(kinds + ["Mul", "Pow"] * 2 * (degree == 2))):
            case "Add" | "Sub" | "Sum" as kind:
                pair = self.tree(degree, depth - 1), self.tree(1, depth - 1)
                return self.node(f"{kind}({', '.join(self.draw(st.permutations(pair)))})")
            case "Mul":
                return self.node(f"Mul({self.tree(1, depth - 1)}, {self.tree(1, depth - 1)})")
            case "Pow":
                self.constants["two"] = np.asarray(2.0)
                return self.node(f"Pow({self.tree(1, depth - 1)}, two)")
            case "Neg" | "Identity" as kind:
                return self.node(f"{kind}({self.tree(degree, depth - 1)})")
            case "Div":
                return self.node(f"Div({self.tree(degree, depth - 1)}, {self.constant()})")
            case "constant":
                kind = self.draw(st.sampled_from(["Mul", "Add", "Sub"]))
                return self.node(f"{kind}({self.tree(degree, depth - 1)}, {self.constant()})")
        kind = self.draw(st.sampled_from(["Mul", "Add", "Sub"]))
        return self.node(f"{kind}({self.constant()}, {self.tree(degree, depth - 1)})")


@st.composite
def trees(draw: st.DrawFn) -> tuple[ModelProto, str]:
    tree = Trees(draw)
    value = tree.tree(2, draw(st.integers(1, 3)))
    weights: dict[str, Any] = {"W": np.random.default_rng(0).normal(size=(3, 4)), **tree.constants}
    body = f"h = MatMul(x, W) {' '.join(tree.nodes)}"
    model = build(body, inputs="double[N,3] x", outputs=f"double[N,4] {value}, double[N,4] h",
                  **weights)  # fmt: skip
    return model, value


@settings(max_examples=60, deadline=None)
@given(trees())
def test_random_trees_compute_the_coefficients_that_are_read(made: tuple[ModelProto, str]) -> None:
    model, value = made
    region = region_behind(Graph(model), value, "")
    p, size = (
        polynomial_of(Graph(model), region.nodes, "h", value, 4, "rows", absolute)
        for absolute in (False, True)
    )
    found, h = outputs_of(model, X)
    assert np.all(np.abs(p(h) - found) <= 1e-14 * len(model.graph.node) * size(np.abs(h)))


def test_a_wrong_spelling_is_not_mistaken_for_a_polynomial() -> None:
    """The product of two values of one map, one of them moved to other features."""
    sizes = {"W": (3, 3), "b": (3,), "V": (2, 3), "c": (2,)}
    ones: dict[str, Any] = {name: np.ones(shape, np.float32) for name, shape in sizes.items()}
    model = build(
        GEMMS.format("t = Transpose <perm = [1, 0]> (h) s = Mul(h, t)"),
        inputs="float[3,3] x",
        outputs="float[3,2] y",
        **ones,
    )
    assert find_layers(Graph(model)) == ([], [])


@pytest.mark.parametrize("tiny", [1e-9, 1e-14, 1e-18])
def test_a_square_that_is_lost_beside_its_linear_term_is_refused(tiny: float) -> None:
    model = polynomial_layer(COSTLY["1e-4·x² + x"], tiny=tiny)
    matches, refused = find_layers(Graph(model))
    assert not matches
    assert [r.reason for r in refused] == ["its square term is too small beside its linear one"]
