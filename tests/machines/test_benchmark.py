"""Models side by side on this machine: what is measured, what is refused, what is printed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from typer.testing import CliRunner, Result

from onnxfde.command.main import app
from onnxfde.errors import DataError, OptionError
from onnxfde.graph.input_specs import InputSpec
from onnxfde.machines.benchmark import bench
from onnxfde.machines.results import Comparison, ModelResult, ModelSize
from onnxfde.machines.shapes import batch_sizes, feed_for, fixed_specs
from onnxfde.machines.targets.base import answers_in
from onnxfde.machines.targets.process import attended
from onnxfde.machines.targets.runner import RESULT
from onnxfde.running.samples import make_samples
from tests.machines.processes import runners, wait_until
from tests.models import build, mlp, twins

F32 = np.dtype(np.float32)
TOO_LARGE = 10**12


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(app, [str(a) for a in args])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(mlp(*twins()), tmp_path / "a.onnx")
    return tmp_path / "a.onnx"


@pytest.fixture
def unknown_operator(tmp_path: Path) -> Path:
    """Valid ONNX that no runtime has a kernel for."""
    broken = mlp(*twins())
    broken.graph.node[1].op_type = "Unheard"
    broken.graph.node[1].domain = "nowhere"
    broken.opset_import.append(onnx.helper.make_opsetid("nowhere", 1))
    onnx.save(broken, tmp_path / "broken.onnx")
    return tmp_path / "broken.onnx"


@dataclass(frozen=True)
class Zoo:
    """All kinds of models, measured together at the batch sizes 1, 16 and one that is too large."""

    folder: Path
    names: list[str]
    found: Comparison

    def row(self, name: str) -> tuple[ModelSize, ModelResult]:
        i = self.names.index(name)
        return self.found.models[i], self.found.targets[0].lines[i]


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    folder = tmp_path_factory.mktemp("zoo")
    ones = np.ones((3, 2), np.float32)
    models = {
        "a": mlp(*twins()),
        "b": mlp(*twins(distinct=2)),
        "fixed": mlp(*twins(), batch="1"),
        "no inputs": build("y = Identity(W)", inputs="", outputs="float[3,2] y", W=ones),
        "text out": build("y = Cast <to = 8> (x)", "float[N,3] x", "string[N,3] y"),
        "text in": build("y = Identity(x)", "string[N] x", "string[N] y"),
        "two inputs": build("y = MatMul(x, w)", "float[N,3] x, float[3,5] w", "float[N,5] y"),
        "input file": build("y = MatMul(file, W)", inputs="float[N,3] file", W=ones),
    }
    files = {name: folder / f"{name}.onnx" for name in models}
    for name, model in models.items():
        onnx.save(model, files[name])
    files["outside"] = folder / "outside.onnx"
    onnx.save(
        models["a"], files["outside"], save_as_external_data=True, location="w", size_threshold=0
    )
    files["ort"] = folder / "a.ort"
    save_as_ort(files["a"], files["ort"])
    files["link"] = folder / "links" / "m.onnx"
    files["link"].parent.mkdir()
    (folder / "blob").write_bytes(files["a"].read_bytes())
    files["link"].symlink_to(folder / "blob")
    found = bench(list(files.values()), batches=[1, 16, TOO_LARGE], seconds=0.05)
    return Zoo(folder, list(files), found)


def save_as_ort(model: Path, file: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(file)
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def test_everything_is_measured_of_every_model_at_every_batch_size(zoo: Zoo) -> None:
    for name, neurons in (("a", 6), ("b", 4)):
        size, line = zoo.row(name)
        assert size.bytes == (zoo.folder / f"{name}.onnx").stat().st_size
        assert size.multiply_adds == neurons * 3 + 2 * neurons
        assert size.parameters == neurons * 3 + neurons + 2 * neurons + 2
        assert line.load is not None
        assert line.load > 0
        assert line.peak_memory is None or line.peak_memory > 0
        assert [run_.batch for run_ in line.latencies] == [1, 16, TOO_LARGE]
        for run_ in line.latencies[:2]:
            assert run_.least is not None
            assert run_.p50 is not None
            assert run_.p90 is not None
            assert 0 < run_.least <= run_.p50 <= run_.p90
            assert run_.speedup is not None
            assert run_.speedup.low <= run_.speedup.value <= run_.speedup.high
            assert (run_.turns or 0) >= 16
    first = zoo.row("a")[1].latencies[0].speedup
    assert first is not None
    assert first.value == 1.0


def test_a_fixed_batch_is_measured_at_its_size_and_the_others_are_left_out(zoo: Zoo) -> None:
    single, sixteen, _ = zoo.row("fixed")[1].latencies
    assert single.p50
    assert sixteen.left_out == "its batch is fixed at 1 (input 'x')"


def test_too_large_a_batch_is_left_out(zoo: Zoo) -> None:
    many = zoo.row("a")[1].latencies[2]
    assert "its inputs have 3,000,000,000,000 values" in (many.left_out or "")


def test_inputs_that_are_no_numbers_are_refused(zoo: Zoo) -> None:
    size, line = zoo.row("text in")
    assert "input 'x' holds object" in (size.error or "")
    assert line.latencies == ()
    assert zoo.found.failed


@pytest.mark.parametrize(
    "name", ["no inputs", "text out", "two inputs", "input file", "outside", "ort", "link"]
)
def test_unusual_models_are_measured_at_every_batch_size(zoo: Zoo, name: str) -> None:
    size, line = zoo.row(name)
    assert (size.error, line.error) == (None, None)
    assert all(run_.p50 for run_ in line.latencies[:2])


def test_the_sizes_of_unusual_models(zoo: Zoo) -> None:
    """Free axes that are no batch, weights in a file beside the model, onnxruntime's format."""
    assert zoo.row("two inputs")[0].multiply_adds == 15
    files = (zoo.folder / "outside.onnx", zoo.folder / "w")
    assert zoo.row("outside")[0].bytes == sum(file.stat().st_size for file in files)
    ort, _ = zoo.row("ort")
    assert (ort.parameters, ort.bytes) == (None, (zoo.folder / "a.ort").stat().st_size)


def test_a_failing_first_model_leaves_no_ratios_and_a_fixed_batch_needs_no_option(
    unknown_operator: Path, tmp_path: Path
) -> None:
    onnx.save(mlp(*twins(), batch="4"), tmp_path / "four.onnx")
    found = bench([unknown_operator, tmp_path / "four.onnx"], seconds=0)
    (run_,) = found.targets[0].lines[1].latencies
    assert run_.batch == 4
    assert run_.p50
    assert run_.speedup is None


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


def test_json_replaces_nothing_but_json(tmp_path: Path) -> None:
    path = tmp_path / "b.onnx"
    onnx.save(mlp(*twins()), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    for victim in (path, tmp_path / "w.bin"):
        before = victim.read_bytes()
        done = run("bench", path, "--json", victim)
        assert done.exit_code == 2
        assert "is not JSON; choose another file" in done.stderr
        assert victim.read_bytes() == before


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
