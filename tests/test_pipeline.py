"""The Python functions `optimize` and `verify`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxfde
from onnxfde.demo import demo_data, demo_model
from onnxfde.graph.model import Graph
from onnxfde.graph.stamp import weights_hash
from onnxfde.graph.tensors import copy_of
from onnxfde.inspection import rounded_up
from tests.models import Array, build, mlp, outputs_of, twins

W, B, V, C = twins()
SHARED = Path(__file__).parents[2] / "shared"


def test_a_path_and_a_model_give_the_same_result_and_the_model_is_not_changed() -> None:
    model = onnx.load(demo_model())
    before = copy_of(model)
    first, second = (onnxfde.optimize(m, input_range=(0, 1)) for m in (demo_model(), model))
    assert model == before
    assert first.model == second.model


def test_repeated_runs_give_the_same_bytes() -> None:
    first, second = (onnxfde.optimize(demo_model(), data=demo_data()).model for _ in range(2))
    assert first.SerializeToString() == second.SerializeToString()


def test_the_demo_keeps_its_error_at_eps_zero_with_at_most_36_neurons() -> None:
    report = onnxfde.optimize(demo_model(), eps=0, input_range=(0, 1)).report
    assert report.layers[0].neurons_after <= 36
    with_data = onnxfde.optimize(demo_model(), eps=0, data=demo_data()).report
    assert with_data.layers[0].neurons_after <= 38
    found = with_data.verification
    assert found is not None
    assert found.metric_after == pytest.approx(found.metric_before, rel=1e-4)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("data", [False, True])
def test_neurons_present_four_times_leave_one_each_in_a_chain(seed: int, data: bool) -> None:
    rng = np.random.default_rng(seed)

    def four_times(inputs: int) -> tuple[Array, Array]:
        scale = rng.uniform(0.5, 2, (256, 1)) * rng.choice([-1, 1], (256, 1))
        rows = np.tile(rng.normal(size=(64, inputs + 1)) / np.sqrt(inputs), (4, 1)) * scale
        rows = rows[rng.permutation(256)].astype(np.float32)
        return rows[:, :-1], rows[:, -1]

    (w, b), (m, k) = four_times(10), four_times(256)
    model = build(
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) g = Gemm <transB = 1> (s, M, k) "
        "t = Mul(g, g) y = Gemm <transB = 1> (t, V, c)",
        inputs="float[N,10] x",
        outputs="float[N,1] y",
        W=w,
        b=b,
        M=m,
        k=k,
        V=rng.normal(size=(1, 256)).astype(np.float32),
        c=np.zeros(1, np.float32),
    )
    rows = {"x": rng.uniform(-1, 1, (1000, 10))}
    report = onnxfde.optimize(model, eps=0, data=rows if data else None).report
    assert [layer.neurons_after for layer in report.layers] == [64, 64]
    assert report.verification is not None
    assert report.verification.unverified is None


def test_layers_can_be_chosen_and_skipped() -> None:
    model = build(
        "[one] h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) "
        "[two] g = Gemm <transB = 1> (s, M) t = Mul(g, g) y = Gemm <transB = 1> (t, V, c)",
        W=W,
        b=B,
        M=np.random.default_rng(0).normal(size=(6, 6)).astype(np.float32),
        V=V,
        c=C,
    )
    chosen = onnxfde.optimize(model, eps=0.3, layers=("one",)).report
    assert [layer.name for layer in chosen.layers] == ["one"]
    rest = onnxfde.optimize(model, eps=0.3, skip=("one",)).report
    assert [layer.name for layer in rest.layers] == ["two"]
    nothing = onnxfde.optimize(model, skip=("*",)).report
    assert nothing.unchanged == "no layer is selected"


def test_each_layer_can_have_its_own_eps() -> None:
    report = onnxfde.optimize(demo_model(), eps=0.3, layer_eps={"node_linear": 0.0}).report
    assert report.layers[0].neurons_after >= 35


def test_the_reason_why_nothing_merges() -> None:
    relu = build("h = Relu(x) y = Sigmoid(h)", outputs="float[N,3] y")
    assert "its activations are 1 × Relu, 1 × Sigmoid" in (
        onnxfde.optimize(relu).report.unchanged or ""
    )
    refused = build("h = Relu(x) y = Mul(h, h)", outputs="float[N,3] y")
    assert "none of the 1 activations" in (onnxfde.optimize(refused).report.unchanged or "")
    plain = build("y = Identity(x)", outputs="float[N,3] y")
    assert (onnxfde.optimize(plain).report.unchanged or "").endswith("with constants)")


def test_the_smallest_useful_eps_is_named_and_does_merge() -> None:
    model = mlp(*twins(copies=1, distinct=6))
    report = onnxfde.optimize(model, eps=1e-7).report
    useful = float((report.unchanged or "").split()[-1])
    assert onnxfde.optimize(model, eps=useful).report.changed


def test_rounding_up() -> None:
    assert rounded_up(0.12341) == "0.124"
    assert rounded_up(0) == "0"


def test_weights_that_overflow_the_stored_type_are_not_written() -> None:
    w, v = np.full((4, 3), 0.25, np.float16), np.full((1, 4), 30000, np.float16)
    model = build(
        "h = Gemm <transB = 1> (x, W) s = Mul(h, h) y = Gemm <transB = 1> (s, V)",
        inputs="float16[N,3] x",
        outputs="float16[N,1] y",
        W=w,
        V=v,
    )
    result = onnxfde.optimize(model, neurons=1, verify=False)
    assert result.report.layers[0].remark == (
        "left alone, because if merged its weights overflow float16"
    )
    assert result.model == model


def test_parameters_outside_the_layers_count_in_full() -> None:
    model = build(
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) m = Gemm <transB = 1> (s, V, c) "
        "r = Exp(m) y = MatMul(r, Z)",
        W=W,
        b=B,
        V=V,
        c=C,
        Z=np.zeros((2, 2), np.float32),
    )
    report = onnxfde.optimize(model, eps=0).report
    assert report.parameters.before == W.size + B.size + V.size + C.size + 4
    assert report.parameters.after == 9 + 3 + 6 + 2 + 4


def test_data_may_be_arrays() -> None:
    rows = np.load(demo_data())
    arrays = {name: rows[name] for name in rows.files}
    first = onnxfde.optimize(demo_model(), data=arrays)
    second = onnxfde.optimize(demo_model(), data=demo_data())
    assert first.report.layers == second.report.layers


def test_saving_without_a_file_to_copy_writes_the_model(tmp_path: Path) -> None:
    model = build("y = Identity(x)", outputs="float[N,3] y")
    onnxfde.optimize(model).save(tmp_path / "o.onnx")
    assert onnx.load(tmp_path / "o.onnx") == model


def test_the_hash_of_the_weights_sees_every_weight() -> None:
    hashes = set()
    for i in range(4):
        weights = [a.copy() for a in (W, B, V, C)]
        weights[i].flat[0] += 1
        hashes.add(weights_hash(Graph(mlp(*weights))))
    assert len(hashes | {weights_hash(Graph(mlp(W, B, V, C)))}) == 5


def test_an_unstable_chain_is_measured_in_plain_coefficients() -> None:
    model = build(
        "g = Exp(x) k = Exp(g) e = Exp(k) h = Gemm <transB = 1> (e, W, b) s = Mul(h, h) "
        "y = Gemm <transB = 1> (s, V, c)",
        W=W,
        b=B,
        V=V,
        c=C,
    )
    report = onnxfde.optimize(model, eps=0.01, input_range=(0, 100), verify=False).report
    assert "overflow on these samples" in (report.layers[0].remark or "")


@pytest.mark.skipif(not SHARED.exists(), reason="the shared folder with real models is not here")
def test_a_real_network_for_homomorphic_encryption() -> None:
    path = SHARED / "models" / "cryptonets_square.onnx"
    result = onnxfde.optimize(path, 0.1, input_range=(0, 1), quotient="refit")
    channels, layer = result.report.layers
    assert (channels.name, channels.neurons_before) == ("Conv_0", 4)
    assert (layer.name, layer.neurons_before) == ("Gemm_3", 128)
    assert layer.neurons_after < 128
    assert len(layer.blocks) == layer.neurons_after
    x = np.random.default_rng(0).uniform(0, 1, (1, 1, 32, 32)).astype(np.float32)
    assert outputs_of(result.model, x)[0].shape == (1, 10)


def test_a_glob_sets_the_eps_of_the_layers_it_matches() -> None:
    report = onnxfde.optimize(demo_model(), 0.3, layer_eps={"node*": 0.0}).report
    assert (report.layers[0].eps, report.layers[0].neurons_after) == (0.0, 35)
