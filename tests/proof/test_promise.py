"""Certificates, limits on them, and folded maps, through the whole pipeline."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import onnxfde
from onnxfde.command.main import app
from onnxfde.demo import demo_data, demo_model
from onnxfde.errors import OptionError, UsageError, VerificationError
from onnxfde.graph.protos import ModelProto
from onnxfde.numbers import FloatArray
from onnxfde.options import Quotient
from tests.models import build, mlp, outputs_of, twins


def bound(result: onnxfde.Result) -> float:
    assert result.report.certificate is not None
    return result.report.certificate.largest


def net(neurons: int = 40, activation: str = "Identity") -> ModelProto:
    """Two square layers, 5-n-4 and 4-n-3, with an activation between them."""
    rng, n = np.random.default_rng(0), neurons
    shapes = {"a": (n, 5), "b": (n,), "c": (4, n), "d": (4,), "e": (n, 4), "f": (3, n)}
    weights = {k: (rng.normal(size=s) / np.sqrt(s[-1])).astype("f") for k, s in shapes.items()}
    return build(
        "[one] h = Gemm <transB = 1> (x, a, b) s = Mul(h, h) [two] m = Gemm <transB = 1> (s, c, d) "
        f"n = {activation}(m) [three] g = Gemm <transB = 1> (n, e) t = Mul(g, g) "
        "[four] y = Gemm <transB = 1> (t, f)",
        inputs="float[N,5] x",
        outputs="float[N,3] y",
        **weights,
    )


def worst(model: ModelProto, other: ModelProto, rows: FloatArray) -> float:
    x = rows.astype(np.float32)
    return float(np.abs(outputs_of(model, x)[0] - outputs_of(other, x)[0]).max())


def test_no_input_shows_more_than_the_report_certifies() -> None:
    model, rng = net(), np.random.default_rng(1)
    result = onnxfde.optimize(model, neurons=6)
    corners = rng.choice([-1.0, 1.0], size=(500, 5))
    assert result.report.certificate is not None
    (output,) = result.report.certificate.outputs
    assert output.measured_max is not None
    assert output.measured_max <= worst(model, result.model, corners) * 1.5
    assert worst(model, result.model, corners) <= output.bound
    assert result.report.certificate.box == "range [-1, 1]"


def one_layer() -> ModelProto:
    """A layer 4-16-2 with random weights."""
    rng = np.random.default_rng(0)
    return mlp(*(rng.normal(size=s).astype("f") for s in ((16, 4), (16,), (2, 16), (2,))))


@pytest.mark.parametrize("quotient", ["minimal", "refit"])
def test_a_limit_on_the_certified_error_stops_the_merging_before_it(quotient: Quotient) -> None:
    model = one_layer()
    free = onnxfde.optimize(model, 0.3, quotient=quotient)
    limit = bound(free) / 3
    kept = onnxfde.optimize(model, 0.3, quotient=quotient, max_certified_error=limit)
    assert bound(kept) <= limit
    before, after = free.report.layers[0], kept.report.layers[0]
    assert before.neurons_after < after.neurons_after < 16
    assert after.eps is not None
    assert after.eps < 0.3
    assert kept.report.settings["eps"] == 0.3


def test_a_limit_that_holds_changes_nothing() -> None:
    free = onnxfde.optimize(one_layer(), 0.3)
    kept = onnxfde.optimize(one_layer(), 0.3, max_certified_error=bound(free))
    assert kept.report.layers == free.report.layers


def test_a_limit_that_cannot_be_kept_is_an_error() -> None:
    with pytest.raises(VerificationError, match=r"exceeds --max-certified-error 0\.001"):
        onnxfde.optimize(demo_model(), neurons=6, data=demo_data(), max_certified_error=1e-3)


def test_where_nothing_merges_within_the_limit_the_model_stays_as_it_is() -> None:
    model = one_layer()
    result = onnxfde.optimize(model, 0.3, max_certified_error=0.0)
    assert result.report.unchanged == "nothing merges within --max-certified-error 0"
    assert result.model == model


def test_a_limit_without_a_certificate_names_the_node() -> None:
    model = net(8, "Exp")
    result = onnxfde.optimize(model, 0.1, quotient="refit")
    assert result.report.certificate is not None
    assert result.report.certificate.unavailable == "not certified: node n (Exp): no rule for it"
    with pytest.raises(VerificationError, match=r"node n \(Exp\): no rule for it; --max-certified"):
        onnxfde.optimize(model, 0.1, quotient="refit", max_certified_error=1.0)


def test_a_certificate_can_be_switched_off_and_bad_limits_are_refused() -> None:
    assert onnxfde.optimize(demo_model(), certify=False).report.certificate is None
    with pytest.raises(UsageError, match="drop --no-certify"):
        onnxfde.optimize(demo_model(), certify=False, max_certified_error=1.0)
    for limit in (-1.0, float("nan")):
        with pytest.raises(OptionError, match="not a number ≥ 0"):
            onnxfde.optimize(demo_model(), max_certified_error=limit)


def test_a_costly_certificate_is_made_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxfde.proof.certificate.CHEAP_FLOPS", 1.0)
    result = onnxfde.optimize(demo_model(), 0.1)
    assert result.report.certificate is not None
    assert "ask for it with --certify" in (result.report.certificate.unavailable or "")
    assert bound(onnxfde.optimize(demo_model(), 0.1, certify=True)) < 1


def test_exact_merges_are_certified_to_rounding() -> None:
    w, b, v, c = twins(distinct=3, copies=3, inputs=4)
    result = onnxfde.optimize(mlp(w, b, v, c), 0.0)
    x = np.random.default_rng(0).uniform(-1, 1, (1000, 4)).astype(np.float32)
    spread = np.ptp(outputs_of(mlp(w, b, v, c), x)[0])
    assert bound(result) <= 1e-5 * spread


def test_errors_of_several_layers_do_not_pile_up_with_data() -> None:
    model, rng = net(), np.random.default_rng(3)
    seen, unseen = (rng.uniform(-1, 1, (2000, 5)).astype(np.float32) for _ in range(2))
    result = onnxfde.optimize(model, neurons=8, data={"x": seen})
    found = onnxfde.verify(model, result.model, data={"x": unseen}).relative_l2
    first, second = (layer for layer in result.report.layers if layer.activation == "square")
    alone = onnxfde.optimize(model, neurons=8, data={"x": seen}, layers=("one",))
    inherited = onnxfde.verify(model, alone.model, data={"x": unseen}).relative_l2
    assert found is not None
    assert inherited is not None
    assert found < inherited + second.error
    assert second.measured_error == pytest.approx(found, rel=0.3)
    assert first.neurons_after == second.neurons_after == 8


def test_outputs_that_overflow_leave_a_report(tmp_path: Path) -> None:
    path, rows, report = (tmp_path / name for name in ("in.onnx", "x.npy", "r.json"))
    onnx.save(mlp(*twins()), path)
    np.save(rows, np.vstack([np.full((1, 3), 1e30), np.ones((200, 3))]).astype(np.float32))
    command = ["optimize", str(path), str(tmp_path / "o.onnx"), "--data", str(rows)]
    done = CliRunner().invoke(app, [*command, "--report", str(report)])
    assert done.exit_code == 0
    assert report.exists()


def test_a_single_row_of_data_and_a_bad_seed(tmp_path: Path) -> None:
    path, rows = tmp_path / "in.onnx", tmp_path / "x.npy"
    onnx.save(mlp(*twins()), path)
    np.save(rows, np.ones((1, 3), np.float32))
    command = ["optimize", str(path), str(tmp_path / "o.onnx"), "--data", str(rows)]
    assert CliRunner().invoke(app, command).exit_code == 0
    done = CliRunner().invoke(app, [*command, "--seed", "-1"])
    assert done.exit_code == 2
    assert "--seed -1 is not a number ≥ 0" in done.stderr


def test_affine_maps_left_side_by_side_are_folded_when_that_is_smaller() -> None:
    rng = np.random.default_rng(0)
    shapes = {"a": (6, 3), "b": (6,), "v": (50, 6), "z": (2, 50)}
    weights = {k: rng.normal(size=s).astype("f") for k, s in shapes.items()}
    model = build(
        "[one] h = Gemm <transB = 1> (x, a, b) s = Mul(h, h) [two] m = Gemm <transB = 1> (s, v) "
        "[three] y = Gemm <transB = 1> (m, z)",
        **weights,  # type: ignore[arg-type]
    )
    result = onnxfde.optimize(model, 0.0)
    (fold,) = result.report.folded
    assert (fold.first, fold.second) == ("two", "three")
    assert result.report.grp_percent < 20
    assert [n.name for n in result.model.graph.node if n.name] == ["one", "three"]
    assert bound(result) < 1e-4
    assert onnxfde.optimize(result.model, 0.0).report.unchanged is not None
    assert not onnxfde.optimize(model, 0.0, semantics="paper").report.folded


@pytest.mark.parametrize("options", [{"eps": 0.1}, {"neurons": 4}])
def test_repeated_runs_of_minimal_give_the_same_bytes(
    options: dict[str, float], tmp_path: Path
) -> None:
    written = []
    for name in ("a.onnx", "b.onnx"):
        onnxfde.optimize(net(8), **options).save(tmp_path / name)  # type: ignore[arg-type]
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]


def test_the_command_shows_the_certificate_and_exits_with_1_when_the_limit_cannot_be_kept(
    tmp_path: Path,
) -> None:
    path, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(net(), path)
    command = ["optimize", str(path), str(out), "--neurons", "8", "--input-range", "-1:1"]
    done = CliRunner().invoke(app, command)
    assert "certified   the bound on 'y' is too loose to be useful" in done.stdout
    out.unlink()
    close = CliRunner().invoke(app, [*command[:3], "--neurons", "11", "--input-range", "-1:1"])
    assert "certified   'y' changes by at most" in close.stdout
    out.unlink()
    refused = CliRunner().invoke(app, [*command, "--max-certified-error", "1e-6"])
    assert refused.exit_code == 1
    assert "exceeds --max-certified-error 1e-06 in the range [-1, 1]" in refused.stderr
    assert not out.exists()
