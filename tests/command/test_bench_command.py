"""The command `bench`: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.command.running import run
from tests.machines.networks import unknown_operator_network
from tests.models import build, mlp, twins


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(mlp(*twins()), tmp_path / "a.onnx")
    return tmp_path / "a.onnx"


@pytest.fixture
def unknown_operator(tmp_path: Path) -> Path:
    onnx.save(unknown_operator_network(), tmp_path / "broken.onnx")
    return tmp_path / "broken.onnx"


def test_quiet_still_says_what_failed(unknown_operator: Path) -> None:
    done = run("bench", unknown_operator, "--seconds", "0", "-q")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "broken.onnx on cpu: " in done.stderr


def test_json_holds_what_the_table_shows_and_replaces_older_json(
    model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "bench.json"
    file.write_text("{}")
    assert run("bench", model, "--seconds", "0", "--json", file, "-q").stdout == ""
    content = json.loads(file.read_text())
    assert content["schema"] == 1
    assert content["models"][0]["file"] == str(model)
    assert content["targets"][0]["lines"][0]["latencies"][0]["p50"] > 0
    assert content["settings"]["threads"] == 1


def test_json_on_stdout_is_json_even_if_nothing_could_be_measured(tmp_path: Path) -> None:
    done = run("bench", tmp_path / "none.onnx", "--json", "-")
    assert done.exit_code == 1
    assert "no such file" in json.loads(done.stdout)["models"][0]["error"]


def test_json_replaces_nothing_but_json(tmp_path: Path) -> None:
    path = tmp_path / "b.onnx"
    onnx.save(mlp(*twins()), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    for victim in (path, tmp_path / "w.bin"):
        before = victim.read_bytes()
        done = run("bench", path, "--json", victim)
        assert done.exit_code == 2
        assert "choose another file" in done.stderr
        assert victim.read_bytes() == before


def test_a_model_that_fails_leaves_the_other_rows(
    model: Path, unknown_operator: Path, tmp_path: Path
) -> None:
    done = run("bench", model, unknown_operator, tmp_path / "none.onnx", "--seconds", "0")
    assert done.exit_code == 1
    assert "a.onnx" in done.stdout
    assert "1×" in done.stdout
    assert "broken.onnx on cpu" in done.stdout
    assert "Unheard" in done.stdout
    assert f"{tmp_path / 'none.onnx'}: no such file" in done.stdout


def test_inputs_come_from_the_data_and_a_missing_one_is_named(model: Path, tmp_path: Path) -> None:
    two = build(
        "s = Add(x, z) y = MatMul(s, W)",
        inputs="float[N,3] x, float[N,3] z",
        W=np.ones((3, 2), np.float32),
    )
    onnx.save(two, tmp_path / "two.onnx")
    np.savez(tmp_path / "x.npz", x=np.ones((5, 3), np.float32))
    done = run(
        "bench", model, tmp_path / "two.onnx", "--data", tmp_path / "x.npz", "--seconds", "0"
    )
    assert done.exit_code == 1
    assert "two.onnx" in done.stdout
    assert "no array 'z'" in done.stdout
    assert "1×" in done.stdout


def test_free_axes_need_a_shape(tmp_path: Path) -> None:
    pooled = build(
        "y = ReduceMean <axes = [2, 3]> (x)", inputs="float[N,3,H,W] x", outputs="float[N,3,1,1] y"
    )
    onnx.save(pooled, tmp_path / "p.onnx")
    done = run("bench", tmp_path / "p.onnx", "--seconds", "0")
    assert done.exit_code == 1
    assert "no length for axis 2 ('H'); give one, such as --shape x:1,3,128,128" in done.stderr
    done = run("bench", tmp_path / "p.onnx", "--seconds", "0", "--shape", "x:1,3,8,8")
    assert done.exit_code == 0
    done = run("bench", tmp_path / "p.onnx", "--seconds", "0", "--shape", "x:1,4,8,8")
    assert "does not fit" in done.stderr
    known = ("--shape", "x:1,3,8,8")
    done = run("bench", tmp_path / "p.onnx", *known, "--shape", "q:1,3,8,8")
    assert "--shape q: no such input; the inputs are x" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--target", "gpu"], 2, "--target gpu: unknown target; there are cpu, arm64"),
        (["--target", "cpu:2"], 2, "takes nothing after it"),
        (["--target", "arm64:cortex-a1"], 2, "the processors are cortex-a53"),
        (["--target", "arm64v8"], 2, "the processors are cortex-a53"),
        (["--batch", "one"], 2, "--batch one: give whole numbers"),
        (["--batch", "0"], 2, "--batch 0 is not a number ≥ 1"),
        (["--threads", "0"], 2, "--threads 0"),
        (["--threads", "1000000000000"], 2, "is not a number from 1 to 1024"),
        (["--seconds", "3", "--batch", "1,2", "--timeout", "4"], 2, "raise --timeout"),
        (["--seconds", "-1"], 2, "--seconds -1"),
        (["--seconds", "nan"], 2, "--seconds nan"),
        (["--timeout", "0"], 2, "--timeout 0"),
        (["--shape", "x"], 2, "--shape x: write NAME:1,3,224,224"),
        (["--shape", "x:1,0"], 2, "--shape x:1,0: write NAME:1,3,224,224"),
        (["--json", "nowhere/at/all.json"], 1, "no such folder"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_runs(
    model: Path, arguments: list[str], code: int, message: str
) -> None:
    done = run("bench", model, *arguments)
    assert done.exit_code == code
    assert message in done.stderr
    assert done.stdout == ""


def test_data_that_is_not_there_is_no_models_fault(model: Path) -> None:
    done = run("bench", model, "--data", "nowhere.npz")
    assert done.exit_code == 1
    assert done.stderr == "onnxfde: --data nowhere.npz: no such file\n"


def test_only_arm64_can_be_set_up() -> None:
    done = run("target", "setup", "cpu")
    assert done.exit_code == 2
    assert "only arm64 needs a set-up" in done.stderr
