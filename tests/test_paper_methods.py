"""The paper's benchmark: what could be wrong quietly. Nothing is trained here."""

from __future__ import annotations

from itertools import pairwise
from math import isnan, sqrt
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.paper import methods
from benchmarks.paper.published import ROWS, SYSTEMS, Figure, Row, half, rows_of
from benchmarks.paper.store import FIELDS, Result, Store, network_hash
from benchmarks.paper.tables import confidence, summarised
from onnxfde.graph import Graph
from onnxfde.pattern import find_layers

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
        found = methods.grp_percent(methods.magnitude(net, row), net.model)
        assert found == pytest.approx(row.magnitude.grp, rel=0, abs=0.1)
        found = methods.grp_percent(methods.wanda(net, row), net.model)
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
    for name in ("0.weight", "2.weight"):
        assert np.array_equal((weight(after, name) == 0).sum(axis=0), [3] * (3 - int(name[0]) // 2))


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
    assert methods.grp_percent(after, net.model) == pytest.approx(100 * 47 / 62, rel=0, abs=1e-9)


@pytest.mark.parametrize("shape", [(3, 10, 2), (3, 10, 2, 10, 2)])
@pytest.mark.parametrize("target", [95.0, 50.0, 21.0])
def test_the_most_neurons_within_a_grp_are_affordable(
    tmp_path: Path, shape: tuple[int, ...], target: float
) -> None:
    net = network(tmp_path, *shape)
    neurons = methods.affordable(net, target)
    model = methods.structured(net, configured(grp=target))
    assert methods.widths(model) == [neurons] * (len(shape) // 2)
    assert methods.grp_percent(model, net.model) <= target
    one_more = methods.grp_percent(model, net.model) * (neurons + 1) / neurons
    assert one_more > target - 5


@pytest.mark.parametrize("method", ["refit", "refit-data", "minimal", "minimal-data"])
def test_no_more_is_left_than_in_the_papers_row(tmp_path: Path, method: str) -> None:
    net = network(tmp_path, 2, 12, 2)
    model = methods.METHODS[method](net, configured(grp=70.0))
    assert methods.grp_percent(model, net.model) <= 70.0
    (left,) = methods.widths(model)
    assert left <= 5  # (2 + 1)(2 + 2)/2 − 1 are lossless


def test_minimal_goes_below_what_is_lossless(tmp_path: Path) -> None:
    net = network(tmp_path, 2, 12, 2)
    model = methods.METHODS["minimal"](net, configured(grp=30.0))
    assert methods.widths(model) == [methods.affordable(net, 30.0)] == [3]


@pytest.mark.parametrize("method", ["forward", "backward"])
def test_each_layer_is_lumped_at_its_own_eps(tmp_path: Path, method: str) -> None:
    net = network(tmp_path, 3, 10, 2, 10, 2)
    model = methods.METHODS[method](net, configured(eps=(0.0, 1e6), variant=2))
    assert methods.widths(model) == [10, 1]
    model = methods.METHODS[method](net, configured(eps=(1e6, 0.0), variant=2))
    assert [m.layer.neurons for m in find_layers(Graph(model))[0]] == [1, 10]


def test_errors_are_means_over_rows_and_outputs(tmp_path: Path) -> None:
    net = network(tmp_path, 3, 10, 2)
    (y,) = methods.run(net.model, net.known)
    off = y + np.array([1.0, 3.0], dtype=np.float32)
    assert methods.mean_squared_error(net.model, net.known, off) == pytest.approx(
        5.0, rel=1e-5, abs=0
    )


def test_confidence_is_students() -> None:
    # mean 2, standard deviation 1, t(0.975, 2 degrees of freedom) = 4.302653
    assert confidence([1.0, 2.0, 3.0]) == pytest.approx(4.302653 / sqrt(3), rel=1e-6, abs=0)
    assert isnan(confidence([1.0]))


def test_every_published_table_is_complete() -> None:
    assert SYSTEMS == ("RN", "EN", "POL", "GLY", "Abalone", "HEPC", "Metro", "Protein")
    assert len(ROWS) == 3 * (5 + 6 + 6 + 5) + 4 * 7
    for system in SYSTEMS:
        for variant in (1, 2, 3) if system in SYSTEMS[:4] else (1,):
            rows = rows_of(system, variant)
            assert [row.config for row in rows] == [f"C{i + 1}" for i in range(len(rows))]
            assert rows[0].eps == (0.0,) * {1: 1, 2: 2, 3: 4}[variant]
            assert {len(row.eps) for row in rows} == {len(rows[0].eps)}
            assert rows[0].fde.grp == rows[0].magnitude.grp == rows[0].wanda.grp == 100
            assert all(a.fde.grp > b.fde.grp for a, b in pairwise(rows))
            figures = [f for row in rows for f in (row.fde, row.magnitude, row.wanda)]
            assert all(0 < f.grp <= 100 and f.mse > 0 and f.ci > 0 for f in figures)


def test_published_figures_are_the_papers() -> None:
    assert rows_of("GLY")[4] == Row(
        "GLY", 1, "C5", (1.5,), 99, 99,
        Figure(17.78, 4.95e-4, 2.72e-4), Figure(54.01, 8.62e-2, 2.11e-2),
        Figure(54.28, 2.54e-2, 1.12e-2),
    )  # fmt: skip
    assert rows_of("POL", 3)[5].eps == (1.5, 2.0, 2.5, 2.5)
    assert rows_of("GLY", 2)[4].eps == (2.0, 1.5)
    assert rows_of("EN", 2)[5].fde == Figure(39.79, 2.33e-7, 1.95e-7)
    assert rows_of("EN")[3].magnitude_percent == 92
    assert rows_of("EN")[3].wanda_percent == 90
    assert rows_of("Abalone")[1].magnitude_percent == 20.83
    assert rows_of("Metro")[6].wanda == Figure(33.74, 1.17e-1, 1.45e-2)
    assert rows_of("HEPC")[6].fde == Figure(7.40, 2.12e-1, 7.70e-2)
    assert half("HEPC").fde.grp == 3.70


def result(seed: int = 0, network: str = "abc", mse: float = 0.5) -> Result:
    return Result("RN", 1, seed, network, "minimal", "C2", "9/9", 12.5, mse)


def test_results_are_found_again(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    for seed in range(3):
        Store(path).add(result(seed))
    store = Store(path)
    assert list(store.results.values()) == [result(seed) for seed in range(3)]
    assert ("RN", 1, 2, "abc", "minimal", "C2") in store
    assert ("RN", 1, 2, "other", "minimal", "C2") not in store
    assert path.read_text().splitlines()[0] == ",".join(FIELDS)


@pytest.mark.parametrize("lost", [1, 4, 20])
def test_a_torn_last_line_is_measured_again(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "results.csv"
    for seed in range(2):
        Store(path).add(result(seed))
    whole = path.read_text()
    path.write_text(whole[:-lost])
    store = Store(path)
    assert list(store.results.values()) == [result(0)]
    store.add(result(1))
    assert path.read_text() == whole


def test_a_broken_line_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    Store(path).add(result())
    path.write_text(path.read_text() + "RN,1,1,abc,minimal,C2,9,x,0.5\nRN,1\n")
    assert list(Store(path).results.values()) == [result()]


def test_results_of_a_network_that_was_trained_again_do_not_count(tmp_path: Path) -> None:
    store = Store(tmp_path / "results.csv")
    for found in (result(0), result(1), result(0, "new", 0.25)):
        store.add(found)
    assert set(store.current()) == {result(1), result(0, "new", 0.25)}
    (cell,) = summarised(store.current()).values()
    assert cell.mses == (0.25, 0.5)


def test_a_network_is_known_by_its_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "a.onnx", tmp_path / "b.onnx"
    first.write_bytes(b"1")
    second.write_bytes(b"2")
    assert network_hash(first) != network_hash(second)
    second.write_bytes(b"1")
    assert network_hash(first) == network_hash(second)
