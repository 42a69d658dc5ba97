"""Networks on encrypted inputs and in proofs: the engines run for real."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnxfde
from onnxfde.errors import OnnxfdeError, TargetError, UsageError
from onnxfde.graph.encrypted_cost import encrypted_cost
from onnxfde.graph.model import Graph
from onnxfde.machines.engines.ckks_parameters import MOST_BITS, deepest, parameters_for
from onnxfde.machines.engines.engine_process import measured_models, named_engine
from onnxfde.machines.results import BatchResult
from onnxfde.machines.targets.base import Figure, parse_target
from onnxfde.machines.targets.runner import Request
from onnxfde.numbers import Array
from tests.models import build, mlp, outputs_of, twins
from tests.polynomial_networks import NETWORKS, layers, squares_in_a_row, weights

tenseal_only = pytest.mark.skipif(
    importlib.util.find_spec("tenseal") is None, reason="tenseal is not installed (extra [he])"
)
ezkl_only = pytest.mark.skipif(
    importlib.util.find_spec("ezkl") is None, reason="ezkl is not installed (extra [zk])"
)
SAMPLES = 3


def inputs_for(name: str, samples: int = SAMPLES) -> Array:
    shape = (samples, 1, 5, 5) if name == "convolution" else (samples, 3)
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)


def figures(run: BatchResult) -> dict[str, float]:
    return {figure.name: figure.value for figure in run.figures}


@pytest.fixture
def refusal(tmp_path: Path) -> Callable[..., str]:
    """Why an engine does not run a model on inputs of a shape."""

    def said(engine: str, model: onnx.ModelProto, *shape: int, dtype: str = "float32") -> str:
        onnx.save(model, tmp_path / "model.onnx")
        with pytest.raises(OnnxfdeError) as reason:
            named_engine(engine, tmp_path).loaded(tmp_path / "model.onnx", np.ones(shape, dtype))
        return str(reason.value)

    return said


@tenseal_only
@pytest.mark.parametrize("mode", ["batch", "vector"])
@pytest.mark.parametrize("name", NETWORKS)
def test_decrypted_results_are_right_and_operations_as_estimated(
    name: str, mode: str, tmp_path: Path
) -> None:
    from onnxfde.machines.engines.ckks_engine import CkksEngine

    model, x = NETWORKS[name], inputs_for(name, SAMPLES if mode == "batch" else 1)
    file = tmp_path / "model.onnx"
    onnx.save(model, file)
    run = CkksEngine(mode).loaded(file, x)
    run.run()
    (wanted,) = outputs_of(model, x)
    np.testing.assert_allclose(run.output(), wanted, rtol=0, atol=1e-3)
    cost = encrypted_cost(Graph(model))
    assert cost is not None
    assert run.seal.parameters.levels == cost.depth
    estimated = {name: count for name, count in vars(getattr(cost, mode)).items() if count}
    assert dict(run.seal.counts) == estimated


@tenseal_only
def test_bench_shows_encrypted_models_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    from onnxfde.command.bench_table import show_comparison

    models = [mlp(*twins()), mlp(*twins(copies=1))]
    found = onnxfde.bench(models, targets=["tenseal"], batches=SAMPLES, seconds=0.0)
    assert not found.failed
    (place,) = found.targets
    assert "128-bit security" in place.engine
    before, after = (figures(line.latencies[0]) for line in place.lines)
    assert (before["ciphertext multiplications"], after["ciphertext multiplications"]) == (6, 3)
    assert before["encrypted inputs"] > before["encrypted outputs"] > 0
    assert all((line.latencies[0].difference or 1.0) < 1e-3 for line in place.lines)
    show_comparison(found)
    shown = capsys.readouterr().out
    assert "plain multiplications" in shown
    assert "warning: " not in shown.replace("warning: model 2 on tenseal, batch 3: the times", "")


@tenseal_only
def test_operators_that_are_no_polynomials_are_named() -> None:
    (place,) = onnxfde.bench(layers("s = Relu(h)"), targets="tenseal", seconds=0.0).targets
    (run,) = place.lines[0].latencies
    assert run.error == "it has operators that are no affine maps or polynomials: Relu"


@tenseal_only
def test_too_deep_a_network_is_refused(refusal: Callable[..., str]) -> None:
    message = refusal("tenseal", squares_in_a_row(14), 1, 1)
    assert "multiplies 28 times in a row" in message
    assert f"at most {deepest()}" in message


@tenseal_only
def test_a_batch_and_a_layer_that_do_not_fit_the_slots_are_refused(
    refusal: Callable[..., str],
) -> None:
    message = refusal("tenseal", mlp(*twins()), 16385, 3)
    assert message.startswith("a batch of 16,385 needs 16,385 slots")
    wide = build("y = MatMul(x, W)", "float[N,1] x", "float[N,16385] y", W=weights(1, 16385))
    message = refusal("tenseal:vector", wide, 1, 1)
    assert message.startswith("its widest layer, of 16,385 values, needs 32,768 slots")


@tenseal_only
def test_values_that_are_too_large_are_refused(refusal: Callable[..., str]) -> None:
    model = build("y = MatMul(x, W)", W=np.full((3, 2), 1e7, np.float32))
    assert "scale its inputs" in refusal("tenseal", model, 1, 3)


@pytest.mark.parametrize("levels", range(1, deepest() + 1))
def test_parameters_hold_every_depth_at_the_security_that_is_promised(levels: int) -> None:
    found = parameters_for(levels, 1, "a batch of 1")
    assert sum(found.moduli) <= MOST_BITS[found.degree]
    assert len(found.moduli) == levels + 2
    assert max(found.moduli) <= 60


def test_no_parameters_hold_one_level_more() -> None:
    with pytest.raises(TargetError, match=f"at most {deepest()}"):
        parameters_for(deepest() + 1, 1, "a batch of 1")


@pytest.mark.parametrize(("target", "extra"), [("tenseal", "he"), ("ezkl", "zk")])
def test_a_missing_package_is_named_with_its_extra(
    target: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> object:
        return None if name == target else known(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    (place,) = onnxfde.bench(mlp(*twins()), targets=target, seconds=0.0).targets
    assert f"the package {target} is not installed" in (place.error or "")
    assert f"[{extra}]" in (place.error or "")


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(UsageError, match="the engines are tenseal, tenseal:batch, tenseal:vector"):
        parse_target("tenseal:fast")


@ezkl_only
def test_proofs_are_made_and_verified() -> None:
    models = [NETWORKS["x² + x"], layers("s = Relu(h)", width=2)]
    found = onnxfde.bench(models, targets="ezkl", seconds=0.0)
    assert not found.failed
    (place,) = found.targets
    for line in place.lines:
        known = figures(line.latencies[0])
        assert known["rows"] <= 2 ** known["logrows"] < 2 ** known["logrows by default"]
        assert known["proof"] < known["proving key"]
        assert (line.latencies[0].difference or 1.0) < 0.01


@ezkl_only
def test_what_ezkl_cannot_prove_is_said(refusal: Callable[..., str]) -> None:
    double = build("y = MatMul(x, W)", "double[N,3] x", "double[N,2] y", W=np.ones((3, 2)))
    message = refusal("ezkl", double, 1, 3, dtype="float64")
    assert message == "ezkl takes float32 only, and its input is float64"
    unknown = build("y = MatMul(x, W)", W=weights(3, 2))
    unknown.graph.node[0].op_type = "Unheard"
    assert refusal("ezkl", unknown, 1, 3)


@ezkl_only
def test_a_model_with_two_outputs_is_refused(refusal: Callable[..., str]) -> None:
    model = build("y = Mul(x, x) z = Neg(x)", outputs="float[N,3] y, float[N,3] z")
    assert "2 outputs; only one" in refusal("ezkl", model, 1, 3)


class OneFails:
    """An engine and its workload: the second model that it loads fails when it runs."""

    title, load_seconds = "an engine", 0.0

    def __init__(self, runs: bool = True) -> None:
        self.runs, self.models = runs, 0

    def loaded(self, file: Path, x: Array) -> OneFails:
        self.models += 1
        return OneFails(self.models != 2)

    def run(self) -> None:
        if not self.runs:
            raise TargetError("it cannot be proven")

    def output(self) -> Array:
        return np.zeros(1)

    def figures(self, seconds: float) -> list[Figure]:
        return []


def test_a_model_that_fails_leaves_the_others_their_times(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 3), np.float32))
    model = {"file": "m.onnx", "names": ["x"], "inputs": {"1": "x.npz"}}
    content = {"seconds": 0.0, "models": [model] * 3}
    (tmp_path / "request.json").write_text(json.dumps(content))
    found = measured_models(OneFails(), Request(str(tmp_path / "request.json")))
    assert [answer["failed"] for answer in found] == [{}, {"1": "it cannot be proven"}, {}]
    assert [list(answer["times"]) for answer in found] == [["1"], [], ["1"]]
