"""The command `optimize`: what it writes and prints."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.command.running import GLY, ROWS, B, C, V, W, run, without_layers
from tests.models import build, mlp, twins


def test_optimize_writes_a_smaller_model_and_shows_what_it_measured(tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    done = run("optimize", GLY, out, "--eps", "0.1", "--data", ROWS)
    assert done.exit_code == 0
    assert "120 → 6" in done.stdout
    assert "relative L2 0.0" in done.stdout
    assert "MSE" in done.stdout
    assert out.stat().st_size < Path(GLY).stat().st_size
    assert without_layers(done.stderr) == ""


def test_at_eps_a_tenth_the_demo_loses_at_least_70_percent_of_its_neurons(tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    assert (
        run("optimize", GLY, tmp_path / "o.onnx", "--data", ROWS, "--report", report).exit_code == 0
    )
    (layer,) = json.loads(report.read_text())["layers"]
    assert layer["neurons_after"] <= 0.3 * layer["neurons_before"]


def test_the_report_file_tells_what_was_written(tmp_path: Path) -> None:
    report, out = tmp_path / "r.json", tmp_path / "o.onnx"
    run("optimize", GLY, out, "--data", ROWS, "--quotient", "refit", "--report", report)
    found = json.loads(report.read_text())
    assert found["bytes"] == {"before": Path(GLY).stat().st_size, "after": out.stat().st_size}
    assert found["input_sha256"] == sha256(Path(GLY).read_bytes()).hexdigest()
    assert found["output_sha256"] == sha256(out.read_bytes()).hexdigest()


def test_a_guessed_range_is_mentioned(model: Path, tmp_path: Path) -> None:
    done = run("optimize", model, tmp_path / "o.onnx")
    assert "inputs are assumed to be in [-1, 1]" in done.stderr
    done = run("optimize", model, tmp_path / "o.onnx", "--input-range", "-1:1")
    assert (done.exit_code, without_layers(done.stderr)) == (0, "")


def test_an_unchanged_model_is_copied_and_can_be_a_failure(tmp_path: Path) -> None:
    """Exit code 3, and the reason on stderr where there is no table."""
    source, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(mlp(*twins(distinct=2, copies=1)), source)
    assert run("optimize", source, out, "--eps", "0").exit_code == 0
    for options in ((), ("--quiet",), ("--json", "-"), ("--dry-run",)):
        out.unlink(missing_ok=True)
        done = run("optimize", source, out, "--eps", "0", "--fail-if-unchanged", *options)
        assert done.exit_code == 3
        told = "no neurons merge at this setting"
        assert told in (done.stdout if options in ((), ("--dry-run",)) else done.stderr)
        assert out.exists() == (options != ("--dry-run",))


def test_a_changed_model_is_no_failure(model: Path, tmp_path: Path) -> None:
    done = run("optimize", model, tmp_path / "o.onnx", "--fail-if-unchanged")
    assert done.exit_code == 0


def test_quiet_prints_nothing(model: Path, tmp_path: Path) -> None:
    done = run("optimize", model, tmp_path / "o.onnx", "--quiet")
    assert done.output == ""
    assert (tmp_path / "o.onnx").exists()


def test_verbose_prints_reasons_and_times(tmp_path: Path) -> None:
    path = tmp_path / "in.onnx"
    body = (
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) m = Gemm <transB = 1> (s, V, c) "
        "r = Exp(m) q = Mul(r, r) y = Identity(q)"
    )
    onnx.save(build(body, W=W, b=B, V=V, c=C), path)
    done = run("optimize", path, tmp_path / "o.onnx", "--verbose", "--eps", "0")
    assert "left alone  q: Exp 'r' stands before the activation" in done.stdout
    assert "partition" in done.stdout


def test_a_dry_run_writes_nothing(model: Path, tmp_path: Path) -> None:
    done = run("optimize", model, tmp_path / "gone" / "o.onnx", "--dry-run")
    assert done.exit_code == 0
    assert "nothing was written" in done.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.onnx"]


def test_a_large_error_is_pointed_out(model: Path, tmp_path: Path) -> None:
    done = run("optimize", model, tmp_path / "o.onnx", "--neurons", "1")
    assert "changed by more than 15 % of what they vary: optimize with a larger --neurons" in (
        done.stdout
    )


def test_a_second_run_recognises_its_own_work(model: Path, tmp_path: Path) -> None:
    first, second, third = (tmp_path / f"{i}.onnx" for i in range(3))
    run("optimize", model, first, "--eps", "0.3")
    done = run("optimize", first, second, "--eps", "0.3")
    assert "made it with these settings before" in done.stdout
    assert second.read_bytes() == first.read_bytes()
    for options in (("--eps", "0.3", "--force"), ("--eps", "0.2")):
        done = run("optimize", first, third, *options)
        assert done.exit_code == 0
        assert "made it" not in done.stdout


def test_changed_weights_are_not_taken_for_own_work(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.onnx"
    run("optimize", model, out, "--eps", "0.3")
    changed = onnx.load(out)
    values = onnx.numpy_helper.to_array(changed.graph.initializer[0]) * 2
    changed.graph.initializer[0].CopyFrom(
        onnx.numpy_helper.from_array(values, changed.graph.initializer[0].name)
    )
    onnx.save(changed, out)
    done = run("optimize", out, tmp_path / "p.onnx", "--eps", "0.3")
    assert done.exit_code == 0
    assert "made it" not in done.stdout


def test_eps_for_single_layers(tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    args = ("--eps", "0.2", "--eps", "node_linear=0.05", "--report", report, "--dry-run")
    assert run("optimize", GLY, tmp_path / "o.onnx", *args).exit_code == 0
    assert json.loads(report.read_text())["layers"][0]["eps"] == 0.05


@pytest.mark.parametrize("share", ["25%", "0.25"])
def test_a_share_of_the_neurons_can_be_kept(tmp_path: Path, share: str) -> None:
    report = tmp_path / "r.json"
    onnx.save(mlp(*twins(distinct=8, copies=1)), tmp_path / "in.onnx")
    args = ("--quotient", "refit", "--dry-run", "--report", report)
    run("optimize", tmp_path / "in.onnx", tmp_path / "o.onnx", "--keep", share, *args)
    assert json.loads(report.read_text())["layers"][0]["neurons_after"] == 2


def test_the_paper_semantics_from_the_command_line(tmp_path: Path) -> None:
    args = (
        "--semantics",
        "paper",
        "--relation",
        "backward",
        "--norm",
        "max",
        "--linkage",
        "diameter",
    )
    done = run("optimize", GLY, tmp_path / "o.onnx", *args, "--eps", "0.2")
    assert done.exit_code == 0
    assert "120 → " in done.stdout


def test_few_rows_of_data_are_remarked_on(tmp_path: Path) -> None:
    rows = np.load(ROWS)
    np.savez(tmp_path / "few.npz", x=rows["x"][:5])
    done = run("optimize", GLY, tmp_path / "o.onnx", "--data", tmp_path / "few.npz")
    assert "measured on 5 rows only" in done.stdout


def random_model(path: Path) -> Path:
    rng = np.random.default_rng(0)
    shapes = ((40, 8), (40,), (12, 40), (12,))
    onnx.save(mlp(*(rng.normal(size=s).astype(np.float32) for s in shapes)), path)
    return path


def test_a_result_that_the_time_limit_cut_says_so_and_is_not_taken_for_finished(
    tmp_path: Path,
) -> None:
    model, out, report = random_model(tmp_path / "m.onnx"), tmp_path / "o.onnx", tmp_path / "r.json"
    words = ("--eps", "0.3", "--no-certify")
    done = run("optimize", model, out, *words, "--time-limit", "1e-9", "--json", report)
    assert done.exit_code == 0
    assert "the time limit ended the search: 0 of" in " ".join(done.stdout.split())
    (layer,) = json.loads(report.read_text())["layers"]
    assert layer["cut"] is True
    assert "time limit" in layer["remark"]
    for limit in ((), ("--time-limit", "1e-9")):
        again = run("optimize", out, tmp_path / "p.onnx", *words, *limit, "--dry-run")
        assert again.exit_code == 0
        assert "made it" not in again.stdout


def test_a_time_limit_that_is_not_reached_changes_nothing(tmp_path: Path) -> None:
    model, outs = random_model(tmp_path / "m.onnx"), [tmp_path / "a.onnx", tmp_path / "b.onnx"]
    words = ("--eps", "0.3", "--no-certify", "--no-verify")
    run("optimize", model, outs[0], *words)
    run("optimize", model, outs[1], *words, "--time-limit", "1000")
    assert outs[0].read_bytes() == outs[1].read_bytes()
    again = run("optimize", outs[1], tmp_path / "c.onnx", *words, "--time-limit", "5")
    assert "onnxfde made it with these settings before" in again.stdout


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "inf"])
def test_a_time_limit_is_a_positive_number_of_seconds(tmp_path: Path, limit: str) -> None:
    done = run("optimize", GLY, tmp_path / "o.onnx", "--time-limit", limit)
    assert done.exit_code == 2
    assert done.stderr.strip().endswith("is not a number of seconds > 0")
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("method", [("--quotient", "refit"), ("--semantics", "paper")])
def test_a_time_limit_is_refused_where_nothing_is_searched(
    tmp_path: Path, method: tuple[str, str]
) -> None:
    done = run("optimize", GLY, tmp_path / "o.onnx", "--time-limit", "5", *method)
    assert done.exit_code == 2
    assert "--time-limit needs --quotient minimal" in done.stderr


def test_eps_may_be_a_percentage(model: Path) -> None:
    out = model.with_name("o.onnx")
    for eps in ("5%", "0.05"):
        assert run("optimize", model, out, "--eps", eps, "--json", f"{out}.json").exit_code == 0
        assert json.loads(Path(f"{out}.json").read_text())["settings"]["eps"] == 0.05


def test_the_bound_that_is_shown_has_the_rounding_in_it(model: Path) -> None:
    """A proof for exact arithmetic alone looks broken where rounding is larger."""
    done = run("optimize", model, model.with_name("o.onnx"), "--eps", "0")
    line = " ".join(done.stdout.split()).partition("certified ")[2]
    most, seen, weights, rounding = (
        float(re.findall(pattern, line)[0])
        for pattern in (
            r"at most (\S+)",
            r"seen: (\S+)\)",
            r": (\S+) by the w",
            r"about (\S+) by r",
        )
    )
    assert seen <= most == pytest.approx(weights + rounding, rel=0.1)
    assert weights < seen


@pytest.mark.parametrize(("eps", "warned"), [("0.2", False), ("0.001", True)])
def test_an_error_is_large_compared_with_eps(
    model: Path, monkeypatch: pytest.MonkeyPatch, eps: str, warned: bool
) -> None:
    monkeypatch.setattr("onnxfde.report.BEYOND_EPS", 1.5 if not warned else 1e-6)
    done = run("optimize", model, model.with_name("o.onnx"), "--eps", eps, "--quotient", "refit")
    assert ("The outputs changed by more than" in done.stdout) == warned


def test_a_quantized_model_is_called_that(tmp_path: Path) -> None:
    body = "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = Relu(d)"
    model = build(body, outputs="float[N,3] y", s=np.float32(0.1), z=np.uint8(0))
    onnx.save(model, tmp_path / "q.onnx")
    done = run("optimize", tmp_path / "q.onnx", tmp_path / "o.onnx")
    assert "is quantized already: optimize the float model" in " ".join(done.stdout.split())
