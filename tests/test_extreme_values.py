"""Huge and tiny values: a layer is merged correctly, or left alone with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

import onnxfde
from onnxfde.errors import GoalMissed, VerificationError
from onnxfde.graph.protos import ModelProto
from onnxfde.numbers import ROUNDOFF
from onnxfde.optimization import Optimization
from tests.command.running import run, without_layers
from tests.models import build, outputs_of, twins

W, B, V, C = twins(distinct=4, copies=3)
NAMES = {"float16": "float16", "float32": "float", "float64": "double"}
EXPONENTS = {"float16": 4.5, "float32": 38, "float64": 300}
"""The largest powers of ten."""
SHARES = st.sampled_from([0.0, 0.0, 0.5]) | st.floats(-1, 1)
BUDGET: list[dict[str, Any]] = [{"eps": 0.1}, {"eps": 0.0}, {"eps": 0.3, "quotient": "single"}]
OTHERS: list[dict[str, Any]] = [
    {"neurons": 2},
    {"semantics": "paper"},
    {"semantics": "paper", "relation": "backward", "norm": "max", "eps": 1e9},
    {"semantics": "erode", "relation": "backward", "quotient": "refit"},
    {"certify": True},
]


def scaled(incoming: float, outgoing: float, dtype: str = "float32", noise: int = 0) -> ModelProto:
    """Twelve neurons, three of each kind, with all weights multiplied."""
    rng = np.random.default_rng(noise)
    arrays = [a * (1 + 0.01 * rng.normal(size=a.shape) * bool(noise)) for a in (W, B, V, C)]
    factors = (incoming, incoming, outgoing, 1.0)
    with np.errstate(over="ignore"):
        w, b, v, c = ((a * f).astype(dtype) for a, f in zip(arrays, factors, strict=True))
    return build(
        "[fc] h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) y = Gemm <transB = 1> (s, V, c)",
        inputs=f"{NAMES[dtype]}[N,3] x",
        outputs=f"{NAMES[dtype]}[N,2] y",
        W=w,
        b=b,
        V=v,
        c=c,
    )


def assert_finite_where_it_was(before: ModelProto, after: ModelProto, x: Any) -> None:
    (old,), (new,) = outputs_of(before, x), outputs_of(after, x)
    assert np.isfinite(new[np.isfinite(old)]).all()


@np.errstate(all="ignore")
def assert_equal_up_to_rounding(before: ModelProto, after: ModelProto, x: Any) -> None:
    """|y′ − y| ≤ 16·u·(A + |y|), A the layer on absolute values; and what may underflow."""
    w, b, v, c = (np.abs(numpy_helper.to_array(t)).astype(float) for t in before.graph.initializer)
    size = (np.abs(x).astype(float) @ w.T + b) ** 2 @ v.T + c
    (old,), (new,) = outputs_of(before, x), outputs_of(after, x)
    tiny = 16 * float(np.finfo(x.dtype).tiny)
    allowed = 16 * ROUNDOFF[x.dtype.name] * (size + np.abs(old.astype(float))) + tiny
    assert np.all((np.abs(new.astype(float) - old) <= allowed)[np.isfinite(old)])


@settings(max_examples=40)
@given(
    st.sampled_from(["float32", "float64", "float16"]),
    st.tuples(SHARES, SHARES, SHARES),
    st.sampled_from([*BUDGET, *OTHERS]),
    st.booleans(),
    st.integers(0, 3),
)
def test_any_scale_is_merged_within_eps_or_left_alone(
    dtype: str,
    shares: tuple[float, float, float],
    options: dict[str, Any],
    recorded: bool,
    noise: int,
) -> None:
    incoming, outgoing, reach = (10.0 ** (share * EXPONENTS[dtype]) for share in shares)
    model = scaled(incoming, outgoing, dtype, noise)
    x = (np.random.default_rng(0).uniform(-1, 1, (120, 3)) * reach).astype(dtype)
    result = onnxfde.optimize(
        model, **options, **({"data": x} if recorded else {"input_range": (-reach, reach)})
    )
    for layer in result.report.layers:
        assert layer.neurons_after > 0
        if options in BUDGET and layer.error > options["eps"]:
            assert_equal_up_to_rounding(model, result.model, x)
    assert_finite_where_it_was(model, result.model, x)


def test_weights_times_1e18_are_merged(tmp_path: Path) -> None:
    onnx.save(scaled(1e18, 1.0, noise=1), tmp_path / "in.onnx")
    done = run("optimize", tmp_path / "in.onnx", tmp_path / "o.onnx", "--eps", "0.1")
    assert done.exit_code == 0, done.output
    before, after = (onnx.load(tmp_path / name) for name in ("in.onnx", "o.onnx"))
    assert len(after.graph.initializer[0].raw_data) < len(before.graph.initializer[0].raw_data)
    assert_finite_where_it_was(before, after, np.ones((1, 3), np.float32))


@pytest.mark.parametrize(
    ("incoming", "outgoing", "dtype", "reason"),
    [
        (1e37, 1.0, "float32", "its values overflow float32 on 512 of 512 sample inputs"),
        (1e160, 1.0, "float64", "its values overflow float64 on 512 of 512 sample inputs"),
        (1e300, 1e-300, "float64", "its values overflow float64 on 512 of 512 sample inputs"),
        (1e100, 1.0, "float64", "its weights or inputs are too large to be squared in float64"),
        (1e-100, 1.0, "float64", "its weights or inputs are too small to be squared in float64"),
        (1e-30, 1.0, "float32", "its values are so small that float32 loses them"),
        (np.inf, 1.0, "float32", "a weight is NaN or infinite"),
        (np.nan, 1.0, "float16", "a weight is NaN or infinite"),
    ],
)
@pytest.mark.parametrize("command", ["optimize", "inspect"])
def test_a_layer_beyond_its_type_is_copied_with_a_reason(
    incoming: float, outgoing: float, dtype: str, reason: str, command: str, tmp_path: Path
) -> None:
    model = scaled(incoming, outgoing, dtype)
    for tensor in model.graph.initializer[-1:]:
        tensor.CopyFrom(numpy_helper.from_array(np.zeros(2, dtype), tensor.name))
    onnx.save(model, tmp_path / "in.onnx")
    target = [tmp_path / "o.onnx"] if command == "optimize" else []
    done = run(command, tmp_path / "in.onnx", *target, "--json", tmp_path / "r.json")
    assert done.exit_code == 0, done.output
    (refused,) = json.loads((tmp_path / "r.json").read_text())["refused"]
    assert reason in refused["reason"]
    if target:
        assert target[0].read_bytes() == (tmp_path / "in.onnx").read_bytes()


def test_a_range_and_data_beyond_the_type_leave_the_layer_alone() -> None:
    model = scaled(1.0, 1.0)
    far = onnxfde.optimize(model, input_range=(0, 1e300)).report
    assert "overflow float32 on 512 of 512" in far.refused[0].reason
    near = onnxfde.optimize(model, input_range=(1e-300, 2e-300)).report
    assert near.unchanged is not None
    double = onnxfde.optimize(scaled(1.0, 1.0, "float64"), data=np.full((200, 3), 1e200)).report
    assert "overflow float64 on 160 of 160" in double.refused[0].reason


def fail(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first comparisons with the original find infinite values."""
    honest, calls = Optimization.finished, []

    def finished(self: Optimization, made: Any) -> Any:
        calls.append(made)
        if len(calls) <= times:
            raise VerificationError("the result gives infinity")
        return honest(self, made)

    monkeypatch.setattr(Optimization, "finished", finished)


def test_a_merge_that_fails_the_comparison_is_repeated_without_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail(1, monkeypatch)
    (layer,) = onnxfde.optimize(scaled(1.0, 1.0), eps=0.5).report.layers
    assert (layer.eps, layer.neurons_after) == (0.0, 4)
    assert layer.remark == "merged at ε = 0: otherwise the result gives infinity"


@pytest.mark.parametrize("options", [*BUDGET, *OTHERS[:2]])
def test_a_merge_that_always_fails_the_comparison_ends_in_a_copy(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(2, monkeypatch)
    options = {"eps": 1e9, **options} if "semantics" in options else options
    result = onnxfde.optimize(scaled(1.0, 1.0), **options)
    assert result.report.unchanged == "the merged model was rejected: the result gives infinity"
    assert [layer.neurons_after for layer in result.report.layers] == [12]
    assert result.model == scaled(1.0, 1.0)


def test_a_size_is_missed_if_the_merged_model_fails_the_comparison(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail(1, monkeypatch)
    rejected = (
        r"--max-params \d+ was not met: the merged model was rejected: .*; nothing was written"
    )
    with pytest.raises(GoalMissed, match=rejected):
        onnxfde.optimize(scaled(1.0, 1.0), max_params=0.5)


def test_8_bits_that_fail_the_comparison_are_an_error_that_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, calls = Optimization.compared, []

    def compared(self: Optimization, graph: Any, layers: Any) -> Any:
        calls.append(graph)
        if len(calls) == 2:
            raise VerificationError("the result gives infinity")
        return honest(self, graph, layers)

    monkeypatch.setattr(Optimization, "compared", compared)
    onnx.save(scaled(1.0, 1.0), tmp_path / "in.onnx")
    done = run("optimize", tmp_path / "in.onnx", tmp_path / "o.onnx", "--int8", "dynamic")
    assert done.exit_code == 1
    message = "onnxfde: in 8 bits the result gives infinity; optimize without --int8\n"
    assert without_layers(done.stderr) == message
    assert not (tmp_path / "o.onnx").exists()


def test_a_layer_that_rounding_makes_constant_keeps_a_neuron() -> None:
    smallest = float(np.finfo(np.float16).smallest_subnormal)
    model = build(
        "h = MatMul(x, W) g = Add(h, b) s = Mul(g, g) y = MatMul(s, V)",
        inputs="float16[N,1] x",
        outputs="float16[N,1] y",
        W=np.array([[0.0, smallest, smallest]], np.float16),
        b=np.array([3.3, 8.7, 1.5], np.float16),
        V=np.array([[-smallest], [smallest], [-smallest]], np.float16),
    )
    (layer,) = onnxfde.optimize(model, quotient="single").report.layers
    assert layer.neurons_after > 0
