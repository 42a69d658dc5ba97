"""The methods of the paper's benchmark, on small untrained networks."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.common.layers import widths
from benchmarks.common.scores import grp_percent, outputs_of, score
from benchmarks.paper import methods
from benchmarks.paper.published import Figure, Row, rows_of
from onnxfde.graph.match import find_layers
from onnxfde.graph.model import Graph

HELPER = onnx.helper


def square_model(path: Path, *shape: int, seed: int = 0) -> Path:
    """Gemm → x² → Gemm …, as torch exports it; shape d-n-m or d-n-m-n-m."""
    rng, nodes, tensors, value = np.random.default_rng(seed), [], [], "x"
    for at, (inputs, outputs) in enumerate(pairwise(shape)):
        weight = rng.uniform(0.1, 1.0, (outputs, inputs)) * rng.choice([-1, 1], (outputs, inputs))
        for name, array in ((f"{at}.weight", weight), (f"{at}.bias", rng.uniform(1, 2, outputs))):
            tensors.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
        last = at == len(shape) - 2
        names = [value, f"{at}.weight", f"{at}.bias"]
        nodes.append(HELPER.make_node("Gemm", names, ["y" if last else f"l{at}"], transB=1))
        value = f"l{at}"
        if at % 2 == 0:
            nodes.append(HELPER.make_node("Mul", [value, value], [f"s{at}"]))
            value = f"s{at}"
    float32 = onnx.TensorProto.FLOAT
    graph = HELPER.make_graph(
        nodes,
        "net",
        [HELPER.make_tensor_value_info("x", float32, ["batch", shape[0]])],
        [HELPER.make_tensor_value_info("y", float32, ["batch", shape[-1]])],
        tensors,
    )
    opset = [HELPER.make_opsetid("", 18)]
    onnx.save(HELPER.make_model(graph, opset_imports=opset, ir_version=10), path)
    return path


def network(path: Path, *shape: int) -> methods.Network:
    x = np.random.default_rng(1).uniform(0, 1, (300, shape[0])).astype(np.float32)
    return methods.Network(square_model(path / "net.onnx", *shape), x, (0.0, 1.0))


def configured(
    eps: tuple[float, ...] = (0.0,), grp: float = 100.0, prune: float = 0.0, variant: int = 1
) -> Row:
    figure = Figure(grp, 0.0, 0.0)
    return Row("RN", variant, "C2", eps, prune, prune, figure, figure, figure)


def weight(model: onnx.ModelProto, name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    (tensor,) = (t for t in model.graph.initializer if t.name == name)
    return np.asarray(onnx.numpy_helper.to_array(tensor), dtype=np.float32)


@pytest.mark.parametrize("system", ["RN", "EN", "POL", "GLY"])
def test_magnitude_pruning_leaves_what_the_paper_prints(tmp_path: Path, system: str) -> None:
    inputs = {"RN": 6, "EN": 7, "POL": 9, "GLY": 7}[system]
    net = network(tmp_path, inputs, 120, inputs)
    for row in rows_of(system):
        found = grp_percent(methods.magnitude(net, row), net.model)
        assert found == pytest.approx(row.magnitude.grp, rel=0, abs=0.1)
        found = grp_percent(methods.wanda(net, row), net.model)
        assert found == pytest.approx(row.wanda.grp, rel=0, abs=0.1)


def test_magnitude_pruning_zeroes_the_smallest_weights_into_wide_layers_only(
    tmp_path: Path,
) -> None:
    net = network(tmp_path, 3, 10, 2, 10, 2)
    before, after = net.model, methods.magnitude(net, configured(prune=55.0))
    for name in ("0.weight", "2.weight"):
        old, new = weight(before, name), weight(after, name)
        gone = new == 0
        assert gone.sum() == int(0.55 * old.size)
        assert np.abs(old[gone]).max() < np.abs(old[~gone]).min()
        assert np.array_equal(old[~gone], new[~gone])
    for name in ("1.weight", "3.weight", "0.bias", "3.bias"):
        assert np.array_equal(weight(before, name), weight(after, name))


def test_wanda_scores_are_magnitudes_times_input_norms() -> None:
    w = np.array([[1.0, -2.0], [3.0, 0.5]])
    x = np.array([[3.0, 0.0], [4.0, 2.0]])
    assert np.array_equal(methods.wanda_score(w, x), [[5.0, 4.0], [15.0, 1.0]])


def test_wanda_prunes_the_same_share_of_every_input(tmp_path: Path) -> None:
    net = network(tmp_path, 3, 10, 2, 10, 2)
    after = methods.wanda(net, configured(prune=38.0))
    for name, inputs in (("0.weight", 3), ("2.weight", 2)):
        assert (weight(after, name) == 0).sum(axis=0).tolist() == [3] * inputs


def test_calibration_reads_what_a_layer_inside_reads(tmp_path: Path) -> None:
    net = network(tmp_path, 3, 10, 2, 10, 2)
    first, second = net.inputs_of([m.source for m in net.layers], methods.CALIBRATION)
    x = net.known[: methods.CALIBRATION]
    model = net.model
    hidden = (x @ weight(model, "0.weight").T + weight(model, "0.bias")) ** 2
    expected = hidden @ weight(model, "1.weight").T + weight(model, "1.bias")
    assert np.array_equal(first, x)
    np.testing.assert_allclose(second, expected, rtol=1e-5, atol=1e-5)


def test_grp_counts_nonzero_weights_and_biases(tmp_path: Path) -> None:
    net = network(tmp_path, 3, 10, 2)  # 30 + 10 + 20 + 2 parameters
    after = methods.magnitude(net, configured(prune=50.0))
    assert grp_percent(after, net.model) == pytest.approx(100 * 47 / 62, rel=0, abs=1e-9)


def parameters(shape: tuple[int, ...]) -> int:
    return sum((inputs + 1) * outputs for inputs, outputs in pairwise(shape))


@pytest.mark.parametrize("shape", [(3, 10, 2), (3, 10, 2, 10, 2)])
@pytest.mark.parametrize("target", [95.0, 50.0, 21.0])
def test_the_most_neurons_within_a_grp_are_affordable(
    tmp_path: Path, shape: tuple[int, ...], target: float
) -> None:
    net = network(tmp_path, *shape)
    neurons = methods.affordable(net, target)
    model = methods.structured(net, configured(grp=target))
    assert widths(model) == [neurons] * (len(shape) // 2)
    assert grp_percent(model, net.model) <= target
    narrow, wider = (shape[:1] + ((n, 2) * (len(shape) // 2)) for n in (neurons, neurons + 1))
    assert parameters(narrow) <= target / 100 * parameters(shape) < parameters(wider)


@pytest.mark.parametrize("method", ["refit", "refit-data", "minimal", "minimal-data"])
def test_no_more_is_left_than_in_the_papers_row(tmp_path: Path, method: str) -> None:
    net = network(tmp_path, 2, 12, 2)
    model = methods.METHODS[method](net, configured(grp=70.0))
    assert grp_percent(model, net.model) <= 70.0
    (left,) = widths(model)
    assert left <= 5  # (2 + 1)(2 + 2)/2 − 1 are lossless


def test_minimal_goes_below_what_is_lossless(tmp_path: Path) -> None:
    net = network(tmp_path, 2, 12, 2)
    model = methods.METHODS["minimal"](net, configured(grp=30.0))
    assert widths(model) == [methods.affordable(net, 30.0)] == [3]


@pytest.mark.parametrize("method", ["forward", "backward"])
def test_each_layer_is_lumped_at_its_own_eps(tmp_path: Path, method: str) -> None:
    net = network(tmp_path, 3, 10, 2, 10, 2)
    model = methods.METHODS[method](net, configured(eps=(0.0, 1e6), variant=2))
    assert widths(model) == [10, 1]
    model = methods.METHODS[method](net, configured(eps=(1e6, 0.0), variant=2))
    assert [m.layer.neurons for m in find_layers(Graph(model))[0]] == [1, 10]


def test_errors_are_means_over_rows_and_outputs(tmp_path: Path) -> None:
    net = network(tmp_path, 3, 10, 2)
    (y,) = outputs_of(net.model, net.known)
    off = y + np.array([1.0, 3.0], dtype=np.float32)
    assert score(y, off) == pytest.approx(5.0, rel=1e-5, abs=0)
