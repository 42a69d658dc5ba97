"""Models side by side on this machine: what is measured, what is refused, what is printed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner, Result

from onnxfde.command.main import app
from onnxfde.errors import DataError, OptionError
from onnxfde.graph.input_specs import InputSpec
from onnxfde.machines.benchmark import bench
from onnxfde.machines.shapes import batch_sizes, feed_for, fixed_specs
from onnxfde.machines.targets.base import answers_in
from onnxfde.machines.targets.process import attended
from onnxfde.machines.targets.runner import RESULT
from onnxfde.running.samples import make_samples
from tests.machines.processes import runners, wait_until
from tests.models import build, mlp, twins

F32 = np.dtype(np.float32)


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(app, [str(a) for a in args])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(mlp(*twins()), tmp_path / "a.onnx")
    return tmp_path / "a.onnx"


@pytest.fixture
def fixed(tmp_path: Path) -> Path:
    onnx.save(mlp(*twins(), batch="1"), tmp_path / "fixed.onnx")
    return tmp_path / "fixed.onnx"


@pytest.fixture
def unknown_operator(tmp_path: Path) -> Path:
    """Valid ONNX that no runtime has a kernel for."""
    broken = mlp(*twins())
    broken.graph.node[1].op_type = "Unheard"
    broken.graph.node[1].domain = "nowhere"
    broken.opset_import.append(onnx.helper.make_opsetid("nowhere", 1))
    onnx.save(broken, tmp_path / "broken.onnx")
    return tmp_path / "broken.onnx"


def test_everything_is_measured_of_every_model_at_every_batch_size(
    model: Path, tmp_path: Path
) -> None:
    onnx.save(mlp(*twins(distinct=2)), tmp_path / "b.onnx")
    found = bench([model, tmp_path / "b.onnx"], batches=[1, 16], seconds=0.05)
    assert [m.bytes for m in found.models] == [
        p.stat().st_size for p in (model, tmp_path / "b.onnx")
    ]
    assert [m.multiply_adds for m in found.models] == [6 * 3 + 2 * 6, 4 * 3 + 2 * 4]
    assert [m.parameters for m in found.models] == [6 * 3 + 6 + 2 * 6 + 2, 4 * 3 + 4 + 2 * 4 + 2]
    (place,) = found.targets
    for line in place.lines:
        assert line.load is not None
        assert line.load > 0
        assert line.peak_memory is None or line.peak_memory > 0
        for run_ in line.latencies:
            assert run_.least is not None
            assert run_.p50 is not None
            assert run_.p90 is not None
            assert 0 < run_.least <= run_.p50 <= run_.p90
            assert run_.speedup is not None
            assert run_.speedup.low <= run_.speedup.value <= run_.speedup.high
            assert (run_.turns or 0) >= 16
    assert place.lines[0].latencies[0].speedup.value == 1.0  # type: ignore[union-attr]
    assert not found.failed


def test_a_fixed_batch_is_measured_at_its_size_and_the_others_are_left_out(
    model: Path, fixed: Path
) -> None:
    found = bench([model, fixed], batches=[1, 8], seconds=0)
    single, eight = found.targets[0].lines[1].latencies
    assert single.p50
    assert eight.left_out == "its batch is fixed at 1 (input 'x')"
    assert not found.failed


def test_a_fixed_batch_needs_no_option(tmp_path: Path) -> None:
    onnx.save(mlp(*twins(), batch="4"), tmp_path / "four.onnx")
    (line,) = bench([tmp_path / "four.onnx"], seconds=0).targets[0].lines
    assert [r.batch for r in line.latencies] == [4]


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


def test_quiet_still_says_what_failed(model: Path, unknown_operator: Path) -> None:
    done = run("bench", model, unknown_operator, "--seconds", "0", "-q")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "broken.onnx on cpu: " in done.stderr


def test_without_the_first_model_there_are_no_ratios(model: Path, unknown_operator: Path) -> None:
    found = bench([unknown_operator, model], seconds=0)
    (run_,) = found.targets[0].lines[1].latencies
    assert run_.p50
    assert run_.speedup is None


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
    assert "no length for axis 2 ('H'); give one: --shape x:1,3,H,W" in done.stdout
    done = run("bench", tmp_path / "p.onnx", "--seconds", "0", "--shape", "x:1,3,8,8")
    assert done.exit_code == 0
    done = run("bench", tmp_path / "p.onnx", "--seconds", "0", "--shape", "x:1,4,8,8")
    assert "does not fit" in done.stdout
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
        (["--batch", "one"], 1, "--batch one: give whole numbers"),
        (["--batch", "0"], 1, "--batch 0 is not a number ≥ 1"),
        (["--threads", "0"], 1, "--threads 0"),
        (["--threads", "1000000000000"], 1, "is not a number from 1 to 1024"),
        (["--seconds", "3", "--batch", "1,2", "--timeout", "4"], 1, "raise --timeout"),
        (["--seconds", "-1"], 1, "--seconds -1"),
        (["--seconds", "nan"], 1, "--seconds nan"),
        (["--timeout", "0"], 1, "--timeout 0"),
        (["--shape", "x"], 1, "--shape x: write NAME:1,3,224,224"),
        (["--shape", "x:1,0"], 1, "--shape x:1,0: write NAME:1,3,224,224"),
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


def test_json_holds_what_the_table_shows(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    assert run("bench", model, "--seconds", "0", "--json", file, "-q").stdout == ""
    content = json.loads(file.read_text())
    assert content["schema"] == 1
    assert content["models"][0]["file"] == str(model)
    assert content["targets"][0]["lines"][0]["latencies"][0]["p50"] > 0
    assert content["settings"]["threads"] == 1
    assert json.loads(run("bench", model, "--seconds", "0", "--json", "-").stdout)["schema"] == 1
    assert run("bench", model, "--seconds", "0", "--json", file).exit_code == 0


def test_json_replaces_nothing_but_json(tmp_path: Path) -> None:
    path = tmp_path / "b.onnx"
    onnx.save(mlp(*twins()), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    for victim in (path, tmp_path / "w.bin"):
        before = victim.read_bytes()
        done = run("bench", path, "--json", victim)
        assert done.exit_code == 2
        assert "is not JSON; choose another file" in done.stderr
        assert victim.read_bytes() == before


def test_weights_outside_the_model_count_and_run(tmp_path: Path) -> None:
    path = tmp_path / "b.onnx"
    onnx.save(mlp(*twins()), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    found = bench([path], seconds=0)
    assert not found.failed
    assert found.models[0].bytes == path.stat().st_size + (tmp_path / "w.bin").stat().st_size


def test_inputs_may_have_any_name(tmp_path: Path) -> None:
    model = build("y = MatMul(file, W)", inputs="float[N,3] file", W=np.ones((3, 2), np.float32))
    onnx.save(model, tmp_path / "a.onnx")
    assert not bench([tmp_path / "a.onnx"], seconds=0).failed


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGHUP, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_a_killed_bench(model: Path, tmp_path: Path, how: int) -> None:
    marked = tmp_path / "only-here.onnx"
    marked.write_bytes(model.read_bytes())
    process = subprocess.Popen(
        [sys.executable, "-m", "onnxfde", "bench", str(marked), "--seconds", "120"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )

    assert wait_until(lambda: bool(runners(tmp_path)))
    process.send_signal(how)
    process.wait(20)
    assert wait_until(lambda: not runners(tmp_path)), runners(tmp_path)
    if how != signal.SIGKILL:
        assert not list(tmp_path.glob("onnxfde-*"))


def test_a_process_that_hangs_is_ended() -> None:
    done = attended([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.5)
    assert done.reason == "it took longer than 0.5 s; raise --timeout or lower --seconds"


def test_a_process_says_why_it_failed() -> None:
    done = attended([sys.executable, "-c", "import sys; sys.exit('no luck')"])
    assert (done.code, done.reason) == (1, "no luck")
    done = attended([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    assert done.reason == "signal 9"


def test_models_with_unusual_ends_have_rows_too(model: Path, tmp_path: Path) -> None:
    """No inputs at all, and outputs that are no numbers."""
    onnx.save(
        build("y = Identity(W)", inputs="", outputs="float[2,2] y", W=np.ones((2, 2), np.float32)),
        tmp_path / "none.onnx",
    )
    text = build("y = Cast <to = 8> (x)", inputs="float[N,3] x", outputs="string[N,3] y")
    onnx.save(text, tmp_path / "text.onnx")
    found = bench([model, tmp_path / "none.onnx", tmp_path / "text.onnx"], seconds=0)
    assert not found.failed
    assert all(line.latencies[0].p50 for line in found.targets[0].lines)


def test_inputs_that_are_no_numbers_are_refused(model: Path, tmp_path: Path) -> None:
    onnx.save(
        build("y = Identity(x)", inputs="string[N] x", outputs="string[N] y"),
        tmp_path / "text.onnx",
    )
    found = bench([model, tmp_path / "text.onnx"], seconds=0)
    assert "input 'x' holds object" in (found.models[1].error or "")
    assert found.targets[0].lines[0].latencies[0].p50


def test_inputs_with_leading_axes_of_their_own(tmp_path: Path) -> None:
    both = build("y = MatMul(x, w)", inputs="float[N,3] x, float[3,5] w", outputs="float[N,5] y")
    onnx.save(both, tmp_path / "two.onnx")
    found = bench([tmp_path / "two.onnx"], batches=[1, 8], seconds=0)
    assert [run_.left_out for run_ in found.targets[0].lines[0].latencies] == [None, None]
    assert found.models[0].multiply_adds == 15


def test_a_link_to_a_model_is_opened_as_the_link(model: Path, tmp_path: Path) -> None:
    blob, folder = tmp_path / "blob", tmp_path / "links"
    blob.write_bytes(model.read_bytes())
    folder.mkdir()
    (folder / "m.onnx").symlink_to(blob)
    assert not bench([folder / "m.onnx"], seconds=0).failed


def test_too_large_a_batch_is_left_out(model: Path) -> None:
    found = bench([model], batches=[1, 10**12], seconds=0)
    one, many = found.targets[0].lines[0].latencies
    assert one.p50
    assert "its inputs have 3,000,000,000,000 values" in (many.left_out or "")


def test_an_answer_that_was_cut_off_is_no_answer() -> None:
    whole = RESULT + '{"models": []}'
    assert answers_in(f"motd\n{whole}\n{whole[:-3]}\n") == [{"models": []}]


def test_samples_of_many_rows_are_put_end_to_end() -> None:
    rows = np.arange(24.0).reshape(2, 4, 3)
    specs = (spec("a", "N", 3),)
    data = make_samples({"a": rows}, specs, "data")
    fed = feed_for(fixed_specs(specs, 6, {}, data), data, (-1, 1))
    assert np.array_equal(fed["a"], rows.reshape(8, 3)[:6])


def test_data_that_contradicts_a_shape_is_refused() -> None:
    specs = (spec("a", "N", "T"),)
    data = make_samples({"a": np.zeros((5, 9))}, specs, "data")
    with pytest.raises(DataError, match="the data for input 'a' is 2×9, --shape says 2×7"):
        feed_for(fixed_specs(specs, 2, {"a": (1, 7)}, data), data, (-1, 1))


def test_a_leading_axis_without_a_name_takes_the_length_it_is_given() -> None:
    specs = (spec("x", "N", 4), spec("t", None, 8))
    first, second = fixed_specs(specs, 2, {"t": (5, 8)}, None)
    assert (first.dims, second.dims) == ((2, 4), (5, 8))
    assert fixed_specs(specs, 2, {}, None)[1].dims == (2, 8)


def test_empty_axes_are_fed_as_they_are() -> None:
    specs = (spec("a", "N", 0),)
    data = make_samples({"a": np.zeros((3, 0))}, specs, "data")
    assert feed_for(fixed_specs(specs, 2, {}, data), data, (-1, 1))["a"].shape == (2, 0)


def test_one_axis_has_one_length() -> None:
    specs = (spec("a", "N", "T"), spec("b", "N", "T"))
    with pytest.raises(DataError, match="axis 'T' two lengths"):
        fixed_specs(specs, 1, {"a": (1, 5), "b": (1, 7)}, None)


def spec(name: str, *dims: int | str | None) -> InputSpec:
    return InputSpec(name, F32, dims)


def test_axes_of_one_name_have_one_length() -> None:
    specs = (spec("a", "N", "T", 3), spec("b", "N", "T"))
    first, second = fixed_specs(specs, 4, {"a": (1, 7, 3)}, None)
    assert (first.dims, second.dims) == ((4, 7, 3), (4, 7))


def test_data_gives_lengths_to_free_axes() -> None:
    specs = (spec("a", None, None, 3),)
    data = make_samples({"a": np.zeros((5, 9, 3))}, specs, "data")
    assert fixed_specs(specs, 2, {}, data)[0].dims == (2, 9, 3)


def test_the_batch_comes_from_the_option_else_from_the_shape_else_it_is_one() -> None:
    specs = (spec("a", "N", 3),)
    assert batch_sizes(specs, {}, ()) == (1,)
    assert batch_sizes(specs, {"a": (6, 3)}, ()) == (6,)
    assert batch_sizes(specs, {"a": (6, 3)}, (1, 2, 1)) == (1, 2)
    assert batch_sizes((spec("a", 5, 3),), {}, ()) == (5,)


def test_shapes_that_contradict_the_model_are_refused() -> None:
    with pytest.raises(DataError, match="does not fit"):
        fixed_specs((spec("a", "N", 3),), 1, {"a": (1, 3, 1)}, None)


def test_the_api_refuses_what_the_command_refuses(model: Path) -> None:
    with pytest.raises(OptionError, match="--threads"):
        bench([model], threads=0)


def test_models_in_onnxruntimes_own_format_are_measured(model: Path, tmp_path: Path) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "a.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    found = bench([model, tmp_path / "a.ort"], batches=[2], seconds=0)
    assert not found.failed
    assert found.models[1].parameters is None
    assert found.models[1].bytes == (tmp_path / "a.ort").stat().st_size
