"""Models side by side on this machine: what is measured and what is left out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from onnxfde.errors import OptionError
from onnxfde.machines.benchmark import bench
from onnxfde.machines.results import Comparison, ModelResult, ModelSize
from tests.machines.networks import unknown_operator_network
from tests.models import build, mlp, twins

TOO_LARGE = 10**12


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
    assert "input 'x' holds texts, not numbers" in (size.error or "")
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
    tmp_path: Path,
) -> None:
    onnx.save(unknown_operator_network(), tmp_path / "broken.onnx")
    onnx.save(mlp(*twins(), batch="4"), tmp_path / "four.onnx")
    found = bench([tmp_path / "broken.onnx", tmp_path / "four.onnx"], seconds=0)
    (run_,) = found.targets[0].lines[1].latencies
    assert run_.batch == 4
    assert run_.p50
    assert run_.speedup is None


def test_the_api_refuses_what_the_command_refuses() -> None:
    with pytest.raises(OptionError, match="--threads"):
        bench(["a.onnx"], threads=0)
