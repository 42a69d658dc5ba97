"""Goals of the whole model: sizes are kept, losses are met on rows never used before."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxfde
from onnxfde.errors import DataError, GoalMissed, OptionError, UsageError
from onnxfde.estimates import Estimate
from onnxfde.graph.protos import ModelProto
from onnxfde.progress import Progress
from onnxfde.report import Report
from tests.conv_models import images, residual
from tests.models import Array, build, outputs_of

INPUTS = "float[N,6] x"
REFIT: Any = {"quotient": "refit"}


def rows(count: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(count, 6)).astype(np.float32)


@cache
def chain(copies: int = 1) -> ModelProto:
    """6-24-16-3 with ReLU; each neuron of the first layer may be there several times."""
    rng = np.random.default_rng(0)
    a, b, c = (rng.normal(size=s) / np.sqrt(s[0]) for s in ((6, 24), (24, 16), (16, 3)))
    a, b = np.tile(a, (1, copies)), np.tile(b, (copies, 1)) / copies
    weights = {name: w.astype(np.float32) for name, w in zip("abc", (a, b, c), strict=True)}
    body = "[first] h = MatMul(x, a) r = Relu(h) [second] k = MatMul(r, b) q = Relu(k) "
    return build(f"{body} [third] y = MatMul(q, c)", INPUTS, "float[N,3] y", **weights)


def wide_chain() -> ModelProto:
    """6-96-64-3 with ReLU."""
    rng = np.random.default_rng(0)
    shapes = {"a": (6, 96), "b": (96, 64), "c": (64, 3)}
    weights: Any = {n: (rng.normal(size=s) / s[0]).astype(np.float32) for n, s in shapes.items()}
    body = "[first] h = MatMul(x, a) r = Relu(h) [second] k = MatMul(r, b) q = Relu(k) "
    return build(f"{body} [third] y = MatMul(q, c)", INPUTS, "float[N,3] y", **weights)


def change(model: ModelProto, other: ModelProto, x: Array) -> float:
    (old,), (new,) = outputs_of(model, x), outputs_of(other, x)
    return float(np.linalg.norm(new - old) / np.linalg.norm(old - old.mean(axis=0)))


def spent(report: Report) -> dict[str, int]:
    assert report.goal is not None
    return {one.name: one.after for one in report.goal.spent}


@pytest.mark.parametrize("limit", [0.5, 250])
def test_parameters_are_within_the_limit_and_little_is_wasted(limit: float) -> None:
    report = onnxfde.optimize(chain(), max_params=limit, data=rows(500), **REFIT).report
    most = limit if limit > 1 else int(limit * report.parameters.before)
    assert 0.8 * most < report.parameters.after <= most
    assert report.goal is not None
    assert (report.goal.kind, report.goal.limit) == ("params", most)
    assert report.goal.reached == report.parameters.after
    assert spent(report) == {layer.name: layer.neurons_after for layer in report.layers}
    assert sum(one.error_share for one in report.goal.spent) == pytest.approx(1, abs=1e-9)
    assert sum(one.saving_share for one in report.goal.spent) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("limit", [2500, 2400])
def test_bytes_are_those_of_the_file(tmp_path: Path, limit: int) -> None:
    path = tmp_path / "out.onnx"
    report = onnxfde.optimize(chain(), max_bytes=limit, data=rows(200), **REFIT).save(path)
    assert limit - 150 < path.stat().st_size <= limit
    assert report.goal is not None
    assert report.goal.reached == path.stat().st_size


@pytest.mark.parametrize("limit", [8000, 7900])
def test_bytes_are_those_of_all_files(tmp_path: Path, limit: int) -> None:
    model, path = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(wide_chain(), model, save_as_external_data=True, size_threshold=0)
    report = onnxfde.optimize(model, max_bytes=limit, data=rows(200), **REFIT).save(path)
    written = sum(file.stat().st_size for file in tmp_path.glob("out.onnx*"))
    assert limit - 800 < written <= limit
    assert report.goal is not None
    assert report.goal.reached == written


def test_a_file_that_is_too_large_after_all_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "out.ort"
    made = onnxfde.optimize(chain(), max_bytes=2500, data=rows(200), **REFIT)
    with pytest.raises(GoalMissed, match=r"--max-bytes 2,500 was not met: OUT would have \d"):
        made.save(path)
    assert not path.exists()


@pytest.mark.parametrize(("align", "least"), [(None, 0.9), (8, 0.0)])
def test_multiples_give_way_to_a_limit_unless_they_are_asked_for(
    align: int | None, least: float
) -> None:
    given: Any = {"max_macs": 0.8, "align": align, "data": images(200), **REFIT}
    report = onnxfde.optimize(residual(), **given).report
    assert report.multiply_adds is not None
    used = report.multiply_adds.after / (0.8 * report.multiply_adds.before)
    assert least < used <= 1
    counts = [layer.neurons_after for layer in report.layers if layer.changed]
    assert counts
    assert all(count % 8 == 0 for count in counts) == (align == 8)


def test_a_limit_on_a_model_without_layers_to_merge_is_refused() -> None:
    plain = build("y = MatMul(x, a)", INPUTS, "float[N,2] y", a=np.ones((6, 2), np.float32))
    with pytest.raises(OptionError, match="no layer can be made smaller"):
        onnxfde.optimize(plain, max_params=0.5)


def test_a_share_without_its_sign_is_asked_about() -> None:
    with pytest.raises(OptionError, match=r"for 10 % give 10%"):
        onnxfde.optimize(chain(), max_params=10, data=rows(200), **REFIT)


def test_a_model_that_is_small_enough_is_copied() -> None:
    report = onnxfde.optimize(chain(), max_params=10_000, **REFIT).report
    assert report.unchanged is not None
    assert "the model is within --max-params 10,000 already" in report.unchanged


def test_what_lossless_merging_reaches_is_the_result() -> None:
    report = onnxfde.optimize(chain(4), max_params=0.4, data=rows(300), **REFIT).report
    assert report.parameters.after <= 0.4 * report.parameters.before
    assert report.goal is not None
    assert report.goal.tries == 0
    assert report.verification is not None
    assert (report.verification.relative_l2 or 0) < 1e-5


@pytest.mark.parametrize(("align", "noted"), [(None, True), (1, False)])
def test_multiples_that_were_given_up_are_remarked_on(align: int | None, noted: bool) -> None:
    lines = list[str]()
    options = {**REFIT} if align is None else {**REFIT, "align": align}
    progress = Progress(note=lines.append)
    onnxfde.optimize(residual(), max_params=0.7, data=images(200), progress=progress, **options)
    assert any("which run faster (--align 8), would leave only" in line for line in lines) == noted


def test_sizes_need_no_data_where_no_channels_are_fitted() -> None:
    report = onnxfde.optimize(chain(), max_params=0.5, **REFIT).report
    assert report.parameters.after <= 0.5 * report.parameters.before
    assert report.assumed


def test_the_smallest_step_is_tried_before_nothing_is_said_to_merge() -> None:
    lines = list[str]()
    progress = Progress(note=lines.append)
    found = onnxfde.optimize(
        residual(), max_error=0.001, data=images(300), progress=progress, **REFIT
    )
    assert found.report.unchanged == "nothing merges within --max-error 0.001"
    whole = found.report.parameters.before
    tried = int(lines[-2].partition("try 1: ")[2].partition(" ")[0].replace(",", ""))
    assert 0 < tried < whole
    assert "by 8 channels at a time; --align 1 allows smaller steps" in lines[-1]


def test_an_error_is_met_on_rows_never_seen() -> None:
    sizes = []
    for limit in (0.5, 0.3):
        result = onnxfde.optimize(chain(), max_error=limit, data=rows(800), **REFIT)
        goal = result.report.goal
        assert goal is not None
        assert goal.reached is not None
        assert 0.5 * limit < goal.reached <= limit
        assert change(chain(), result.model, rows(2000, seed=9)) <= 1.1 * limit
        sizes.append(result.report.parameters.after)
    assert sizes[0] < sizes[1] < result.report.parameters.before


def test_an_error_that_allows_nothing_is_met_by_the_original() -> None:
    report = onnxfde.optimize(chain(), max_error=1e-4, data=rows(300), **REFIT).report
    assert report.unchanged == "nothing merges within --max-error 0.0001"
    assert report.goal is not None
    assert (report.goal.reached, report.parameters.after) == (0.0, report.parameters.before)


def test_an_error_of_convolutions_is_met() -> None:
    result = onnxfde.optimize(residual(), max_error=0.25, data=images(400), align=1, **REFIT)
    goal = result.report.goal
    assert goal is not None
    assert goal.reached is not None
    assert goal.reached <= 0.25
    assert result.report.parameters.after < 0.95 * result.report.parameters.before
    assert change(residual(), result.model, images(500, seed=5)) <= 1.1 * 0.25


def test_the_same_run_gives_the_same_bytes() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=s).astype(np.float32) for s in ((6, 8), (8, 2)))
    body = "h = MatMul(x, a) r = Mul(h, h) y = MatMul(r, b)"
    narrow = build(body, INPUTS, "float[N,2] y", a=a, b=b)
    made = [
        onnxfde.optimize(narrow, max_error=0.3, data=rows(300)).model.SerializeToString()
        for _ in range(2)
    ]
    assert made[0] == made[1]


def test_points_that_so_few_rows_cannot_show_are_refused_at_once() -> None:
    x = rows(400)
    labels = outputs_of(chain(), x)[0].argmax(axis=1)
    with pytest.raises(
        DataError, match=r"cannot be shown with 400 rows: .* give about 1,\d{3} rows"
    ):
        onnxfde.optimize(chain(), max_drop=0.5, data={"x": x, "y": labels}, **REFIT)


def test_points_of_accuracy_are_kept() -> None:
    x = rows(3000)
    labels = outputs_of(chain(), x)[0].argmax(axis=1)
    result = onnxfde.optimize(chain(), max_drop=3.0, data={"x": x, "y": labels}, **REFIT)
    goal, seen = result.report.goal, result.report.verification
    assert goal is not None
    assert seen is not None
    assert goal.reached is not None
    assert goal.reached == pytest.approx(100 * (1 - (seen.metric_after or 0)), abs=1e-9)
    assert 0 < goal.reached <= 3.0
    assert result.report.parameters.after < result.report.parameters.before


def test_the_squared_error_rises_by_no_more_than_allowed() -> None:
    x = rows(2000)
    noise = np.random.default_rng(1).normal(size=(2000, 3))
    targets = outputs_of(chain(), x)[0] + 0.3 * noise
    result = onnxfde.optimize(chain(), max_drop=20.0, data={"x": x, "y": targets}, **REFIT)
    seen = result.report.verification
    assert seen is not None
    assert (seen.metric_after or 0) <= 1.2 * (seen.metric_before or 0)
    assert result.report.parameters.after < result.report.parameters.before


def test_a_goal_that_is_missed_on_the_verdict_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Estimate, "expected", lambda loss, _: 0.4 * loss.value)
    with pytest.raises(GoalMissed, match=r"--max-error 0.1 was not met: 0\.\d+ on 80 rows"):
        onnxfde.optimize(chain(), max_error=0.1, data=rows(400), **REFIT)


def test_a_limit_below_one_unit_in_each_layer_is_refused() -> None:
    with pytest.raises(OptionError, match="--max-params: 5 parameters are too few"):
        onnxfde.optimize(chain(), max_params=0.01, data=rows(200), **REFIT)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"max_error": 0.1}, UsageError, "--max-error is about real inputs: give --data"),
        ({"max_drop": 1.0}, UsageError, "--max-drop is about real inputs: give --data with labels"),
        ({"max_error": 0.1, "data": rows(150)}, DataError, "at least 200 rows of --data"),
        ({"max_drop": 1.0, "data": rows(400)}, DataError, "needs labels or targets"),
        ({"max_error": 0.1, "data": rows(400), "verify": False}, UsageError, "drop --no-verify"),
        ({"max_error": 0.0, "data": rows(400)}, UsageError, "--eps 0 merges without loss"),
        ({"max_drop": -1.0, "data": rows(400)}, UsageError, "not between 0 and 100"),
        ({"max_error": 0.1, "keep": 0.5}, UsageError, "cannot be combined"),
        ({"max_params": 0.5, "max_macs": 0.5}, UsageError, "cannot be combined"),
        ({"max_bytes": 500, "int8": "dynamic"}, UsageError, "limit --max-params"),
        ({"max_latency": "fast"}, UsageError, "give milliseconds or a share below 100%"),
        ({"max_latency": "60%ms"}, UsageError, "give milliseconds or a share below 100%"),
        ({"max_latency": "120%"}, UsageError, "give milliseconds or a share below 100%"),
        ({"max_params": 0.5, "semantics": "paper"}, UsageError, "needs --semantics budget"),
    ],
)
def test_goals_that_make_no_sense_are_refused(
    options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        onnxfde.optimize(chain(), **options)


def test_labels_that_do_not_fit_are_refused_before_anything_is_merged() -> None:
    with pytest.raises(DataError, match="runs from 0 to 7, the classes are 0 to 2"):
        onnxfde.optimize(chain(), max_drop=1.0, data={"x": rows(400), "y": np.arange(400) % 8})


def test_a_model_that_is_quick_enough_is_merged_without_loss_only() -> None:
    report = onnxfde.optimize(chain(2), max_latency="1000", data=rows(300), **REFIT).report
    assert report.goal is not None
    assert report.goal.tries == 0
    assert report.layers[0].neurons_after == 24
