"""The commands as a user runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner, Result

from onnxfde import __version__
from onnxfde.command.main import app
from onnxfde.command.progress_bar import progress_bar
from onnxfde.demo import demo_data, demo_model
from tests.models import build, mlp, twins

GLY, ROWS = str(demo_model()), str(demo_data())
W, B, V, C = twins()


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(app, [str(a) for a in args])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "in.onnx"
    onnx.save(mlp(W, B, V, C), path)
    return path


def test_optimize_writes_a_smaller_model_and_shows_what_it_measured(tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    done = run("optimize", GLY, out, "--eps", "0.1", "--data", ROWS)
    assert done.exit_code == 0
    assert "120 → 6" in done.stdout
    assert "relative L2 0.0" in done.stdout
    assert "MSE" in done.stdout
    assert out.stat().st_size < Path(GLY).stat().st_size
    assert done.stderr == ""


def test_at_eps_a_tenth_the_demo_loses_at_least_70_percent_of_its_neurons(tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    assert (
        run("optimize", GLY, tmp_path / "o.onnx", "--data", ROWS, "--report", report).exit_code == 0
    )
    (layer,) = json.loads(report.read_text())["layers"]
    assert layer["neurons_after"] <= 0.3 * layer["neurons_before"]


def test_the_report_has_every_documented_field(tmp_path: Path) -> None:
    report, out = tmp_path / "r.json", tmp_path / "o.onnx"
    run("optimize", GLY, out, "--data", ROWS, "--report", report)
    found = json.loads(report.read_text())
    assert found["schema"] == 1
    assert found["version"] == __version__
    assert found["settings"]["eps"] == 0.1
    assert found["parameters"]["before"] == 1807
    assert found["grp_percent"] == pytest.approx(
        100 * found["parameters"]["after"] / 1807, abs=1e-3
    )
    assert found["bytes"] == {"before": Path(GLY).stat().st_size, "after": out.stat().st_size}
    assert len(found["output_sha256"]) == len(found["input_sha256"]) == 64
    (layer,) = found["layers"]
    assert {
        "name",
        "activation",
        "inputs",
        "outputs",
        "neurons_before",
        "neurons_after",
    } <= layer.keys()
    assert layer["blocks"] == []
    assert layer["neurons_lossless"] == 35
    assert layer["lower_bound"] < layer["error"]
    assert 0 < layer["error"] <= layer["eps"] == 0.1
    verification = found["verification"]
    assert verification["samples"] == 300
    assert verification["metric_after"] > verification["metric_before"] > 0
    assert 0 < verification["relative_l2"] < 0.13
    assert {"max_abs_error", "mean_abs_error", "mse", "source"} <= verification.keys()
    assert list(found["seconds"]) == [
        "load", "match", "partition", "quotient", "fold", "certify", "int8", "verify", "save",
    ]  # fmt: skip
    certificate = found["certificate"]
    assert certificate["box"] == "range of the data"
    (output,) = certificate["outputs"]
    assert output["name"] == "y"
    assert 0 < output["measured_max"] < output["bound"]
    assert 0 < certificate["rounding"] < output["bound"]
    assert certificate["unavailable"] is None
    assert found["folded"] == []
    assert found["refused"] == []


def test_a_guessed_range_is_mentioned(model: Path, tmp_path: Path) -> None:
    done = run("optimize", model, tmp_path / "o.onnx")
    assert "inputs are assumed to be in [-1, 1]" in done.stderr
    assert "note" not in run("optimize", model, tmp_path / "o.onnx", "--input-range", "-1:1").stderr


def test_quiet_prints_nothing(model: Path, tmp_path: Path) -> None:
    done = run("optimize", model, tmp_path / "o.onnx", "--quiet")
    assert done.output == ""
    assert (tmp_path / "o.onnx").exists()


def test_verbose_prints_reasons_and_times(tmp_path: Path) -> None:
    path = tmp_path / "in.onnx"
    body = (
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) m = Gemm <transB = 1> (s, V, c) "
        "r = Relu(m) q = Mul(r, r) y = Identity(q)"
    )
    onnx.save(build(body, W=W, b=B, V=V, c=C), path)
    done = run("optimize", path, tmp_path / "o.onnx", "--verbose", "--eps", "0")
    assert "left alone  q: Relu 'r' stands before the square" in done.stdout
    assert "partition" in done.stdout


def test_a_dry_run_writes_nothing(model: Path, tmp_path: Path) -> None:
    done = run("optimize", model, tmp_path / "gone" / "o.onnx", "--dry-run")
    assert done.exit_code == 0
    assert "nothing was written" in done.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.onnx"]


def test_a_large_error_is_pointed_out(model: Path, tmp_path: Path) -> None:
    done = run("optimize", model, tmp_path / "o.onnx", "--neurons", "1")
    assert "changed by more than 10%" in done.stdout
    assert "--eps" in done.stdout


def test_a_second_run_recognises_its_own_work(model: Path, tmp_path: Path) -> None:
    first, second, third = (tmp_path / f"{i}.onnx" for i in range(3))
    run("optimize", model, first, "--eps", "0.3")
    done = run("optimize", first, second, "--eps", "0.3")
    assert "made it with these settings before" in done.stdout
    assert second.read_bytes() == first.read_bytes()
    assert "before" not in run("optimize", first, third, "--eps", "0.3", "--force").stdout
    assert "made it" not in run("optimize", first, third, "--eps", "0.2").stdout


def test_changed_weights_are_not_taken_for_own_work(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.onnx"
    run("optimize", model, out, "--eps", "0.3")
    changed = onnx.load(out)
    values = onnx.numpy_helper.to_array(changed.graph.initializer[0]) * 2
    changed.graph.initializer[0].CopyFrom(
        onnx.numpy_helper.from_array(values, changed.graph.initializer[0].name)
    )
    onnx.save(changed, out)
    assert "made it" not in run("optimize", out, tmp_path / "p.onnx", "--eps", "0.3").stdout


def test_eps_for_single_layers(tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    args = ("--eps", "0.2", "--eps", "node_linear=0.05", "--report", report, "--dry-run")
    assert run("optimize", GLY, tmp_path / "o.onnx", *args).exit_code == 0
    assert json.loads(report.read_text())["layers"][0]["eps"] == 0.05


def test_a_share_of_the_neurons_can_be_kept(tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    for share in ("25%", "0.25"):
        run("optimize", GLY, tmp_path / "o.onnx", "--keep", share, "--report", report)
        assert json.loads(report.read_text())["layers"][0]["neurons_after"] == 30


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


def test_inspect_shows_layers_and_near_misses(tmp_path: Path) -> None:
    done = run("inspect", GLY, "--input-range", "0:1")
    assert done.exit_code == 0
    assert "7-120-7" in done.stdout
    assert "│ 35 " in done.stdout
    relu = tmp_path / "relu.onnx"
    onnx.save(build("h = Relu(x) y = Relu(h)", outputs="float[N,3] y"), relu)
    assert "no square activation" in run("inspect", relu).stdout
    assert "2 × Relu" in run("inspect", relu).stdout


def test_inspect_as_json() -> None:
    found = json.loads(run("inspect", GLY, "--json").stdout)
    assert found["layers"][0]["name"] == "node_linear"
    assert found["layers"][0]["neurons_at"]["0.0"] == found["layers"][0]["lossless"]


def test_verify_measures_and_can_insist(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.onnx"
    run("optimize", model, out, "--neurons", "2")
    assert "relative L2" in run("verify", model, out).stdout
    assert run("verify", model, out, "--tolerance", "1e-9").exit_code == 1
    assert run("verify", model, model, "--tolerance", "1e-9").exit_code == 0
    found = json.loads(run("verify", model, out, "--json").stdout)
    assert found["relative_l2"] > 1e-3


def test_demo_shows_a_report_and_can_keep_its_files(tmp_path: Path) -> None:
    assert "GRP" in run("demo").stdout
    done = run("demo", "--save", tmp_path)
    assert done.exit_code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["gly-small.onnx", "gly.npz", "gly.onnx"]


def test_version() -> None:
    assert run("--version").stdout == f"onnxfde {__version__}\n"


def test_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "onnxfde", "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "optimize" in done.stdout


def bad_models(folder: Path) -> dict[str, str]:
    """File names and what must be said of them."""
    (folder / "folder").mkdir()
    (folder / "empty.onnx").write_bytes(b"")
    (folder / "cut.onnx").write_bytes(mlp(W, B, V, C).SerializeToString()[:300])
    (folder / "text.onnx").write_text("hello")
    (folder / "none.onnx").write_bytes(b"\x1a\x05hello")
    invalid = mlp(W, B, V, C)
    invalid.graph.node[1].input[0] = "nowhere"
    onnx.save(invalid, folder / "invalid.onnx")
    return {
        "gone.onnx": "no such file",
        "folder": "is a directory",
        "empty.onnx": "is empty",
        "cut.onnx": "is truncated, or not an ONNX file",
        "text.onnx": "not an ONNX file",
        "none.onnx": "holds no graph",
        "invalid.onnx": "is not a valid ONNX model",
    }


def assert_one_line_error(done: Result, message: str, code: int = 1) -> None:
    assert done.exit_code == code, done.output
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("onnxfde: ")
    assert message in line


def test_bad_models_get_one_line(tmp_path: Path) -> None:
    for name, message in bad_models(tmp_path).items():
        for command in (
            ("optimize", tmp_path / name, tmp_path / "o"),
            ("inspect", tmp_path / name),
        ):
            assert_one_line_error(run(*command), message)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("args", "message", "code"),
    [
        (("--eps", "-1"), "--eps -1.0 is not a number ≥ 0", 1),
        (("--eps", "nan"), "--eps nan is not a number ≥ 0", 1),
        (("--eps", "much"), "'much' is not a number", 1),
        (("--eps", "other=0.1"), "no layer is called 'other'; the layers are first", 1),
        (("--layers", "z*"), "no layer is called 'z*'; the layers are first", 1),
        (("--neurons", "0"), "--neurons 0 is not a number ≥ 1", 1),
        (("--keep", "0%"), "is not a share above 0 %", 1),
        (("--keep", "half"), "give a share such as 25%", 1),
        (("--input-range", "1:0"), "needs finite LO < HI", 1),
        (("--data", "gone.npz"), "gone.npz: no such file", 1),
        (("--report", "gone/r.json"), "gone: no such folder", 1),
        (("--quotient", "exact"), "--quotient exact needs --semantics paper", 2),
        (("--relation", "backward"), "need --semantics paper", 2),
        (("--eps", "0.1", "--neurons", "3"), "--eps cannot be combined", 2),
        (("--keep", "20%", "--neurons", "3"), "--neurons and --keep cannot be combined", 2),
        (("--semantics=paper", "--quotient=exact", "--relation=backward"), "exact needs", 2),
    ],
)  # fmt: skip
def test_bad_options_get_one_line(
    model: Path, tmp_path: Path, args: tuple[str, ...], message: str, code: int
) -> None:
    assert_one_line_error(run("optimize", model, tmp_path / "o.onnx", *args), message, code)
    assert not (tmp_path / "o.onnx").exists()


def test_unknown_choices_are_usage_errors(model: Path, tmp_path: Path) -> None:
    done = run("optimize", model, tmp_path / "o.onnx", "--semantics", "other")
    assert done.exit_code == 2
    assert "budget" in done.stderr


def test_data_that_does_not_fit_gets_one_line(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", z=np.zeros((3, 3)))
    done = run("optimize", model, tmp_path / "o.onnx", "--data", tmp_path / "d.npz")
    assert_one_line_error(done, "has no array 'x'")


def test_a_target_that_cannot_be_written_gets_one_line(model: Path, tmp_path: Path) -> None:
    assert_one_line_error(run("optimize", model, tmp_path / "no" / "o.onnx"), "no such folder")
    assert_one_line_error(run("optimize", model, tmp_path), "is not a file")


def test_verifying_what_cannot_be_run_exits_with_one(tmp_path: Path) -> None:
    path = tmp_path / "own.onnx"
    own = build("y = Identity(x)", outputs="float[N,3] y")
    own.graph.node[0].domain = "not.known"
    own.opset_import.add(domain="not.known", version=1)
    onnx.save(own, path)
    done = run("verify", path, path)
    assert done.exit_code == 1
    assert "NOT VERIFIED" in done.stdout


def big_model(path: Path) -> None:
    rng = np.random.default_rng(0)
    shapes: tuple[tuple[int, ...], ...] = ((1500, 200), (1500,), (200, 1500), (200,))
    onnx.save(mlp(*(rng.normal(size=s).astype(np.float32) for s in shapes)), path)


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing_behind(tmp_path: Path, kind: signal.Signals) -> None:
    big_model(tmp_path / "big.onnx")
    command, start = [sys.executable, "-m", "onnxfde"], time.perf_counter()
    subprocess.run([*command, "demo"], check=True, capture_output=True)
    long_enough_to_be_at_work = time.perf_counter() - start
    process = subprocess.Popen(
        [*command, "optimize", "big.onnx", "out.onnx", "--eps", "0.01"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    time.sleep(long_enough_to_be_at_work)
    process.send_signal(kind)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode != 0
    assert b"Traceback" not in stderr
    assert [p.name for p in tmp_path.iterdir()] == ["big.onnx"]


def test_progress_is_shown_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work_a_little() -> str:
        with progress_bar(quiet=False) as work:
            work.say("layer one")
            work.at(3, 10)
        return capsys.readouterr().err

    assert work_a_little() == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = work_a_little()
    assert "layer one" in shown
    assert "3/10" in shown


@pytest.mark.parametrize("target", ["in.onnx", "d.npz", "o.onnx"])
def test_a_report_does_not_replace_another_file_of_the_run(model: Path, target: str) -> None:
    folder = model.parent
    np.savez(folder / "d.npz", x=np.zeros((3, 3)))
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    args = ("--data", folder / "d.npz", "--report", folder / target)
    assert_one_line_error(
        run("optimize", model, folder / "o.onnx", *args), "choose another file", 2
    )
    assert_one_line_error(
        run("optimize", model, folder / "d.npz", "--data", folder / "d.npz"), "is the data file", 2
    )
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def test_a_misspelt_layer_to_skip_is_an_error(model: Path, tmp_path: Path) -> None:
    done = run("optimize", model, tmp_path / "o.onnx", "--skip", "frist")
    assert_one_line_error(done, "no layer is called 'frist'; the layers are first")


def test_eps_twice_is_a_usage_error(model: Path, tmp_path: Path) -> None:
    done = run("optimize", model, tmp_path / "o.onnx", "--eps", "0.1", "--eps", "0.2")
    assert_one_line_error(done, "--eps is given twice", 2)


def test_few_rows_of_data_are_remarked_on(tmp_path: Path) -> None:
    rows = np.load(ROWS)
    np.savez(tmp_path / "few.npz", x=rows["x"][:5])
    done = run("optimize", GLY, tmp_path / "o.onnx", "--data", tmp_path / "few.npz")
    assert "measured on 5 rows only" in done.stdout


def test_other_activations_are_mentioned(tmp_path: Path) -> None:
    path = tmp_path / "mixed.onnx"
    body = (
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) m = Gemm <transB = 1> (s, V, c) y = Relu(m)"
    )
    onnx.save(build(body, W=W, b=B, V=V, c=C), path)
    assert "activations that are not squares: 1 × Relu" in run("inspect", path).stdout
