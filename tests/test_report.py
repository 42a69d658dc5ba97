"""The report: the fields that onnxfde/REPORT.md lists, plain numbers, and JSON without NaN."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxfde
from onnxfde import __version__
from onnxfde.demo import demo_data, demo_model
from onnxfde.graph.protos import ModelProto
from onnxfde.report import Report
from tests.models import build, mlp, twins

REPORT = (Path(__file__).parents[1] / "onnxfde" / "REPORT.md").read_text()
W, B, V, C = twins()


def names(text: str) -> list[str]:
    """The fields that a text lists, without what explains them in parentheses and braces."""
    text = re.sub(r"\([^()]*\)|\{[^{}]*\}", "", text)
    return [name.removesuffix("[]") for name in re.findall(r"`(\w+(?:\[\])?)`", text)]


def documented() -> dict[str, list[str]]:
    """The fields of the table in onnxfde/REPORT.md, each with the fields of its own."""
    table = REPORT[REPORT.index("`onnxfde optimize --json FILE` writes:") :].split("\n\n")[1]
    rows = [line.strip("| ").split(" | ", 1) for line in table.splitlines()[2:]]
    return {name: names(meaning) for fields, meaning in rows for name in names(fields)}


def merged_folded_and_refused() -> ModelProto:
    """Twins to merge, two affine maps to fold, and a power that cannot be merged."""
    rng = np.random.default_rng(0)
    return build(
        "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) m = Gemm <transB = 1> (s, V, c) "
        "r = Relu(m) q = Pow(r, e) a = MatMul(q, F) y = MatMul(a, G)",
        W=W,
        b=B,
        V=V,
        c=C,
        e=np.array(2.5, dtype=np.float32),
        F=rng.normal(size=(2, 8)).astype(np.float32),
        G=rng.normal(size=(8, 2)).astype(np.float32),
    )


def first(found: Any) -> Any:
    return found[0] if isinstance(found, tuple | list) else found


def test_the_readme_lists_every_field_and_no_other() -> None:
    fields = documented()
    plain = onnxfde.optimize(merged_folded_and_refused(), eps=0, certify=True).report.to_dict()
    small = onnxfde.optimize(merged_folded_and_refused(), eps=0, int8="dynamic").report.to_dict()
    assert set(fields) == set(plain) == set(small)
    parts = ("layers", "folded", "refused", "verification", "certificate", "seconds")
    for name in parts:
        assert sorted(first(plain[name])) == sorted(fields[name]), name
    assert sorted(small["int8"]) == sorted(fields["int8"])
    for name in ("parameters", "bytes"):
        assert list(plain[name]) == ["before", "after"]


def test_the_values_are_what_the_readme_says() -> None:
    found = onnxfde.optimize(demo_model(), eps=0.1, data=demo_data()).report.to_dict()
    assert (found["schema"], found["version"]) == (2, __version__)
    assert found["settings"]["eps"] == 0.1
    assert (found["unchanged"], found["int8"]) == (None, None)
    before, after = found["parameters"]["before"], found["parameters"]["after"]
    assert before == 1807
    assert found["grp_percent"] == pytest.approx(100 * after / before, rel=0, abs=1e-3)
    (layer,) = found["layers"]
    assert after == layer["parameters_after"] <= layer["neurons_after"] * (7 + 1 + 7) + 7
    assert (layer["blocks"], layer["neurons_lossless"], layer["dtype"]) == ((), 35, "float32")
    assert 0 < layer["lower_bound"] < layer["error"]
    assert 0 < layer["measured_error"] <= layer["eps"] == 0.1
    verification = found["verification"]
    assert (verification["samples"], verification["metric"]) == (60, "MSE")
    assert 0 < verification["metric_after"] != verification["metric_before"] > 0
    assert verification["held_out"] is True
    assert 0 < verification["mean_abs_error"] < verification["max_abs_error"]
    assert 0 < verification["relative_l2"] < 0.13
    certificate = found["certificate"]
    (output,) = certificate["outputs"]
    assert (certificate["box"], output["name"]) == ("range of the data", "y")
    assert output["measured_max"] == verification["max_abs_error"] < output["bound"]
    assert 0 < certificate["rounding"] < output["bound"]


def assert_plain(value: Any) -> Any:
    """The value as JSON has it; types of numpy, and floats that are not finite, are errors."""
    if isinstance(value, dict):
        assert all(type(key) is str for key in value)
        return {key: assert_plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [assert_plain(part) for part in value]
    assert value is None or type(value) in (bool, int, float, str), repr(value)
    assert not isinstance(value, float) or math.isfinite(value)
    return value


def constant_output() -> Report:
    return onnxfde.optimize(mlp(W, B, np.zeros_like(V), C), eps=0).report


def outputs_that_are_no_numbers() -> Report:
    body = "h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) d = Gemm <transB = 1> (s, V, c) "
    model = build(f"{body} n = Neg(d) a = Abs(n) m = Neg(a) y = Log(m)", W=W, b=B, V=V, c=C)
    return onnxfde.optimize(model, eps=0).report


def inputs_that_overflow() -> Report:
    body = "g = Exp(x) k = Exp(g) e = Exp(k) h = Gemm <transB = 1> (e, W, b) s = Mul(h, h) "
    model = build(f"{body} y = Gemm <transB = 1> (s, V, c)", W=W, b=B, V=V, c=C)
    return onnxfde.optimize(model, eps=0.01, input_range=(0, 100)).report


def a_count_by_the_papers_rules() -> Report:
    return onnxfde.optimize(mlp(W, B, V, C), neurons=2, semantics="paper").report


def eight_bits() -> Report:
    return onnxfde.optimize(merged_folded_and_refused(), eps=0, int8="dynamic").report


@pytest.mark.parametrize(
    "made",
    [
        constant_output,
        outputs_that_are_no_numbers,
        inputs_that_overflow,
        a_count_by_the_papers_rules,
        eight_bits,
    ],
)
def test_a_report_is_plain_json_without_nan(made: Any) -> None:
    report: Report = made()
    text = report.to_json()
    assert not re.search(r"\b(NaN|Infinity)\b", text)
    assert json.loads(text) == assert_plain(report.to_dict())
