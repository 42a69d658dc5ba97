"""Labels in the forms that users have them in, and what is said about the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxfde
from onnxfde.estimates import Estimate
from onnxfde.running.label_scores import scores
from tests.command.running import run
from tests.models import build, outputs_of

CLASSES = np.array([0, 2, 1, 2, 1, 0])
BEFORE = np.eye(3)[CLASSES]
AFTER = np.eye(3)[[0, 2, 1, 2, 1, 1]]


def value(found: Estimate | None) -> float:
    assert found is not None
    return found.value


@pytest.mark.parametrize(
    "labels",
    [
        CLASSES,
        CLASSES.astype(np.float32),
        CLASSES[:, None],
        CLASSES[:, None].astype(np.uint8),
        np.eye(3)[CLASSES],
        np.eye(3, dtype=bool)[CLASSES],
    ],
)
def test_classes_may_be_floats_columns_and_one_hot_rows(labels: Any) -> None:
    found = scores([BEFORE], [AFTER], labels)
    assert (found.metric, found.remark) == ("accuracy", None)
    assert (value(found.before), value(found.after)) == pytest.approx((1.0, 5 / 6), rel=1e-12)


def test_targets_are_not_taken_for_classes() -> None:
    target = np.full((6, 3), 0.5)
    found = scores([BEFORE], [AFTER], target)
    assert (found.metric, value(found.before), value(found.after)) == ("MSE", 0.25, 0.25)
    assert scores([BEFORE[:, :1]], [AFTER[:, :1]], CLASSES[:, None]).metric == "MSE"


@pytest.mark.parametrize(
    ("labels", "remark"),
    [
        (CLASSES + 1, "'y' runs from 1 to 3, classes are counted from 0: subtract 1"),
        (CLASSES - 1, "'y' runs from -1 to 1, the classes are 0 to 2"),
        (10 * CLASSES, "'y' runs from 0 to 20, the classes are 0 to 2"),
        (CLASSES + 0.5, "'y' is not used: it is 6, the output 6×3"),
        (np.zeros((6, 5)), "'y' is not used: it is 6×5, the output 6×3"),
    ],
)
def test_strange_labels_are_remarked_on(labels: Any, remark: str) -> None:
    assert scores([BEFORE], [AFTER], labels).remark == remark


def test_an_array_called_labels_is_remarked_on(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=s).astype(np.float32) for s in ((4, 6), (6, 3)))
    body = "h = MatMul(x, a) r = Relu(h) y = MatMul(r, b)"
    model = build(body, "float[N,4] x", "float[N,3] y", a=np.hstack([a, a]), b=np.vstack([b, b]))
    data = {"x": rng.normal(size=(200, 4)).astype(np.float32), "labels": np.zeros(200, int)}
    line = "the array 'labels' is not used: give --labels labels, or call it 'y'"
    result = onnxfde.optimize(model, 0, data=data)
    assert result.report.verification is not None
    assert result.report.verification.metric_remark == line
    result.save(tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", **data)  # type: ignore[arg-type]
    done = run("optimize", tmp_path / "m.onnx", tmp_path / "o.onnx", "--data", tmp_path / "d.npz")
    assert line not in done.stdout  # nothing merges again, so that nothing is measured
    done = run(
        *("optimize", tmp_path / "m.onnx", tmp_path / "o.onnx", "--data", tmp_path / "d.npz"),
        *("--neurons", "2", "--quotient", "refit"),
    )
    assert line in " ".join(done.stdout.split())


def test_labels_by_name_are_not_called_unused() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=s).astype(np.float32) for s in ((4, 6), (6, 3)))
    body = "h = MatMul(x, a) r = Relu(h) y = MatMul(r, b)"
    model = build(body, "float[N,4] x", "float[N,3] y", a=np.hstack([a, a]), b=np.vstack([b, b]))
    x = rng.normal(size=(200, 4)).astype(np.float32)
    data = {"x": x, "target": outputs_of(model, x)[0].argmax(axis=1)}
    found = onnxfde.optimize(model, 0, data=data, labels="target").report.verification
    assert found is not None
    assert (found.metric, found.metric_before, found.metric_remark) == ("accuracy", 1.0, None)


def test_an_original_that_guesses_is_remarked_on() -> None:
    rows = np.eye(4)[np.arange(200) % 4]
    found = scores([rows], [rows], (np.arange(200) + 1) % 4)
    assert found.remark is not None
    assert "the original is right on 0% of the rows" in found.remark
    assert scores([rows], [rows], np.arange(200) % 4).remark is None
