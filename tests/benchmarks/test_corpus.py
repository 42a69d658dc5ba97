"""A slice of the corpus, and the judge on results that were damaged on purpose."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.backend.test.case import node

from benchmarks.common.forked import run_forked
from benchmarks.corpus import judging, results
from benchmarks.corpus.backend_tests import in_the_wheel, stored_case, write_case
from benchmarks.corpus.cases import Case, Source
from benchmarks.corpus.comparing import compare, leaves, rounding
from benchmarks.corpus.judging import Outcome, judged, verdict_of
from benchmarks.corpus.report import sections
from onnxfde.command.main import boundary_line
from tests.models import mlp

SLICE = {"simple": 5, "pytorch-operator": 6, "pytorch-converted": 5}
"""Models of onnx's backend tests that are run here, evenly spread over each group."""
LARGE = {"test_operator_conv", "test_operator_symbolic_override"}
"""Models whose random inputs take seconds."""

NODE_MODULES = ("gemm", "if_", "loop", "optionalgetelement", "string_concat", "dequantizelinear")
NODE_TESTS = {
    "test_gemm_all_attributes", "test_if_seq", "test_loop13_seq", "test_string_concat",
    "test_optional_get_element_optional_sequence", "test_dequantizelinear_e4m3fn",
}  # fmt: skip
"""Node tests with subgraphs, sequences, optional values, strings and odd types."""


def slice_of(group: str) -> list[Case]:
    cases = [case for case in in_the_wheel(group).cases if case.name not in LARGE]
    return cases[:: len(cases) // SLICE[group]]


CASES = [case for group in SLICE for case in slice_of(group)]


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    judging.warm_up()


@pytest.fixture(scope="module")
def square_network(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A network in which every neuron stands twice."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(4, 3)), rng.normal(size=(2, 8))
    arrays = np.repeat(first, 2, axis=0), np.zeros(8), second, np.zeros(2)
    path = tmp_path_factory.mktemp("square") / "square.onnx"
    onnx.save(mlp(*(a.astype(np.float32) for a in arrays)), path)
    return Case("own", "square", path)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_models_of_onnx_are_copied(case: Case) -> None:
    found = {what: (o.verdict, o.reason) for what, o in judged(case).items()}
    assert found == {
        "inspect": ("shown", ""), "0": ("identical", ""), "0.1": ("identical", ""),
    }  # fmt: skip


def node_cases() -> list[Any]:
    """Node tests that onnx makes when these modules are imported."""
    for module in NODE_MODULES:
        importlib.import_module(f"{node.__name__}.{module}")
    return [case for case in node._NodeTestCases if case.name in NODE_TESTS]


def test_generated_node_tests_are_copied(tmp_path: Path) -> None:
    found = {}
    for case in node_cases():
        write_case(case, tmp_path / case.name)
        stored = stored_case("node", tmp_path / case.name / "model.onnx")
        assert stored.stored
        found[case.name] = {o.verdict for o in judged(stored).values()}
    assert found == {name: {"shown", "identical"} for name in NODE_TESTS}


def test_a_merged_network_is_equal_to_the_original(square_network: Case) -> None:
    found = judged(square_network)
    assert found["0"].verdict == "equal"
    assert found["0"].detail["merged"] == 1
    assert found["0"].detail["engine"] == "onnxruntime"
    assert found["0"].megabytes > 50


def damaged(case: Case, path: Path, how: Callable[[onnx.ModelProto], None]) -> Path:
    model = onnx.load(case.path)
    how(model)
    onnx.save(model, path)
    return path


def scale_weights(by: float) -> Callable[[onnx.ModelProto], None]:
    def scale(model: onnx.ModelProto) -> None:
        for tensor in model.graph.initializer:
            array = onnx.numpy_helper.to_array(tensor) * np.float32(by)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))

    return scale


def rename_output(model: onnx.ModelProto) -> None:
    name = model.graph.output[0].name
    model.graph.output[0].name = "other"
    last = model.graph.node[-1]
    last.output[:] = ["other" if value == name else value for value in last.output]


def fix_batch(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1


def raise_opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version += 1


def drop_last_node(model: onnx.ModelProto) -> None:
    del model.graph.node[-1]


@pytest.mark.parametrize(
    ("how", "eps", "verdict", "reason"),
    [
        (scale_weights(1.0), 0.0, "equal", ""),
        (scale_weights(1.001), 0.0, "failed", "times what rounding explains"),
        (scale_weights(1.001), 0.1, "within ε", ""),
        (scale_weights(1.04), 0.1, "within kε", ""),
        (scale_weights(2.0), 0.1, "above ε", ""),
        (scale_weights(float("nan")), 0.1, "failed", "not finite"),
        (rename_output, 0.1, "failed", "outputs changed"),
        (fix_batch, 0.1, "failed", "inputs changed"),
        (raise_opset, 0.1, "failed", "opset"),
        (drop_last_node, 0.1, "failed", "checker"),
    ],
)
def test_the_judge_sees_what_is_wrong(
    how: Callable[[onnx.ModelProto], None],
    eps: float,
    verdict: str,
    reason: str,
    square_network: Case,
    tmp_path: Path,
) -> None:
    result = damaged(square_network, tmp_path / "out.onnx", how)
    found = verdict_of(compare(square_network, result), eps, layers=2)
    assert found[0] == verdict
    assert reason in found[1]


def test_maps_are_compared_as_float32() -> None:
    labels = np.array([0, 1])
    old = leaves([labels, [{0: 0.75, 1: 0.25}, {0: 0.5, 1: 0.5}]])
    new = leaves([labels, [{0: 0.75 + 1e-7, 1: 0.25}, {0: 0.5, 1: 0.5}]])
    far = leaves([labels, [{0: 0.76, 1: 0.25}, {0: 0.5, 1: 0.5}]])
    assert [a.tolist() for a in old[:2]] == [[0, 1], [0, 1, 0, 1]]
    assert max(map(rounding, old, new)) < 1 < max(map(rounding, old, far))


def raised(*_: str) -> None:
    raise ZeroDivisionError("on purpose")


def boundary(*_: str) -> None:
    sys.stderr.write(boundary_line(ZeroDivisionError("on purpose"), None))
    raise SystemExit(1)


def crashed(*_: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def silent(*_: str) -> None:
    raise SystemExit(1)


def strayed(*_: str) -> None:
    Path("left.tmp").touch()


def wrote_nothing(*_: str) -> None:
    pass


@pytest.mark.parametrize(
    ("instead", "reason"),
    [
        (raised, "ZeroDivisionError: on purpose"),
        (boundary, "unexpected error"),
        (crashed, "signal 9"),
        (silent, "exit code 1"),
        (strayed, "left.tmp"),
        (wrote_nothing, "missing"),
    ],
)
def test_a_command_that_misbehaves_has_failed(
    instead: Callable[..., None],
    reason: str,
    square_network: Case,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(judging, "command", instead)
    found = judged(square_network)["0"]
    assert found.verdict == "failed"
    assert reason in found.reason


def test_a_refusal_says_whether_onnxruntime_loads_the_model(tmp_path: Path) -> None:
    path = tmp_path / "empty.onnx"
    path.touch()
    found = judged(Case("own", "empty", path))
    assert {o.verdict for o in found.values()} == {"refused"}
    assert found["0"].detail["loads"] is False
    assert found["0"].reason


def test_a_child_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    def forever() -> None:
        while True:
            pass

    ended = run_forked(forever, tmp_path, seconds=1)
    assert ended.timed_out
    assert ended.code < 0


def test_results_are_kept_and_a_torn_line_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    outcomes = {"0": Outcome("equal", detail={"merged": 1})}
    results.remember("key", outcomes, path)
    with path.open("a") as stream:
        stream.write(json.dumps({"key": "other"})[:-3])
    assert results.known(path) == {"key": outcomes}


def test_the_page_counts_outcomes(square_network: Case) -> None:
    fine, bad = Outcome("identical"), Outcome("failed", "a | b")
    other = dataclasses.replace(square_network, name="other")
    found = {
        square_network: {"inspect": Outcome("shown"), "0": fine, "0.1": fine},
        other: {"inspect": Outcome("shown"), "0": bad, "0.1": fine},
    }
    source = Source("own", "here", (square_network, other))
    page = "\n".join(section.text() for section in sections([source], found))
    assert "| own | 2 | 2 shown | 1 identical, 1 failed | 2 identical |" in page
    assert "| own/other | optimize --eps 0 | a \\| b |" in page
