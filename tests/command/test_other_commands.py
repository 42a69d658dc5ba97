"""The commands `inspect`, `verify` and `demo`, and what all commands share."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from onnxfde import __version__
from tests.command.running import GLY, B, C, V, W, run
from tests.models import build


def test_inspect_shows_layers_and_near_misses(tmp_path: Path) -> None:
    done = run("inspect", GLY, "--input-range", "0:1")
    assert done.exit_code == 0
    assert "7-120-7" in done.stdout
    row = next(line for line in done.stdout.splitlines() if "7-120-7" in line)
    assert row.split()[:5] == ["node_linear", "square", "7-120-7", "1,807", "35"]
    assert "no loss" in done.stdout
    assert "at least" in done.stdout
    relu = tmp_path / "relu.onnx"
    onnx.save(build("h = Relu(x) y = Relu(h)", outputs="float[N,3] y"), relu)
    assert "no activation between two dense layers" in run("inspect", relu).stdout
    assert "2 × Relu" in run("inspect", relu).stdout


def test_inspect_as_json() -> None:
    found = json.loads(run("inspect", GLY, "--input-range", "0:1", "--json", "-").stdout)
    (layer,) = found["layers"]
    shape = [layer[key] for key in ("name", "inputs", "neurons", "outputs", "parameters")]
    assert shape == ["node_linear", 7, 120, 7, 1807]
    assert layer["lossless"] == 35
    assert list(layer["neurons_at"]) == list(layer["fewest_at"])
    assert layer["neurons_at"] == pytest.approx(
        {"0.0": 35, "0.01": 34, "0.05": 31, "0.1": 28, "0.2": 22, "0.3": 18}, rel=0, abs=1
    )
    assert layer["fewest_at"] == pytest.approx(
        {"0.0": 8, "0.01": 6, "0.05": 5, "0.1": 5, "0.2": 4, "0.3": 2}, rel=0, abs=1
    )


def test_verify_measures_and_can_insist(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.onnx"
    run("optimize", model, out, "--neurons", "2")
    assert "relative L2" in run("verify", model, out).stdout
    assert run("verify", model, out, "--tolerance", "1e-9").exit_code == 1
    kept = run("verify", model, model, "--tolerance", "1e-9")
    assert kept.exit_code == 0
    assert "within the tolerance 1e-09" in kept.stdout
    found = json.loads(run("verify", model, out, "--json", "-").stdout)
    assert found["relative_l2"] > 1e-3
    assert (found["tolerance"], found["passed"]) == (None, True)
    for tolerance, passed in ((1e-9, False), (10.0, True)):
        words = ("--tolerance", str(tolerance), "--json", "-")
        found = json.loads(run("verify", model, out, *words).stdout)
        assert (found["tolerance"], found["passed"]) == (tolerance, passed)


def test_demo_shows_a_report_and_can_keep_its_files(tmp_path: Path) -> None:
    done = run("demo", "--save", tmp_path)
    assert done.exit_code == 0
    assert "% left)" in done.stdout
    files = ["digits-small.onnx", "digits.npz", "digits.onnx"]
    assert sorted(p.name for p in tmp_path.iterdir()) == files


@pytest.mark.parametrize(
    "command", [("inspect", "M"), ("verify", "M", "M"), ("bench", "M", "--seconds", "0")]
)
def test_verbose_adds_the_time_and_quiet_leaves_nothing(
    model: Path, command: tuple[str, ...]
) -> None:
    words = [model if word == "M" else word for word in command]
    assert "time: " not in run(*words).stdout
    assert re.search(r"^time: .*\d s$", run(*words, "-v").stdout, re.MULTILINE)
    assert run(*words, "-q").output == ""


def test_version() -> None:
    for option in ("--version", "-V"):
        assert run(option).stdout == f"onnxfde {__version__}\n"


def test_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "onnxfde", "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "optimize" in done.stdout


def test_verifying_what_cannot_be_run_exits_with_one(tmp_path: Path) -> None:
    path = tmp_path / "own.onnx"
    own = build("y = Identity(x)", outputs="float[N,3] y")
    own.graph.node[0].domain = "not.known"
    own.opset_import.add(domain="not.known", version=1)
    onnx.save(own, path)
    done = run("verify", path, path)
    assert done.exit_code == 1
    assert "NOT VERIFIED" in done.stdout
    done = run("verify", path, path, "--quiet")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("onnxfde: not verified: ")


def test_other_activations_are_mentioned(tmp_path: Path) -> None:
    path = tmp_path / "mixed.onnx"
    body = (
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) m = Gemm <transB = 1> (s, V, c) y = Relu(m)"
    )
    onnx.save(build(body, W=W, b=B, V=V, c=C), path)
    assert "activations outside these layers: 1 × Relu" in run("inspect", path).stdout


def test_inspect_names_what_data_must_hold(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(build("y = Identity(x)", "float[N,3] x, int64[1,M] ids, string[2] t"), path)
    assert (
        "inputs      x (float32 N×3), ids (int64 1×M), t (string 2)" in run("inspect", path).stdout
    )
    found = json.loads(run("inspect", path, "--json", "-").stdout)["inputs"]
    assert found[1] == {"name": "ids", "type": "int64", "shape": [1, "M"]}
