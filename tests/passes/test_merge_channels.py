"""Channels of small networks: fewer of them, within what was allowed, on inputs never seen."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest

import onnxfde
from onnxfde.deadline import Deadline
from onnxfde.errors import DataError, OptionError
from onnxfde.graph.input_specs import input_specs
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.passes.merge_channels import MergeChannels
from onnxfde.passes.result import Context, LayerChange, PassResult
from onnxfde.report import Report
from onnxfde.running.input_source import InputSource
from onnxfde.running.samples import make_samples
from tests.conv_models import (
    alike,
    images,
    normal,
    of_signals,
    relative_change,
    residual,
    squeezed,
    with_branches,
    with_resize,
)
from tests.models import Array, build, outputs_of, shapes

X, UNSEEN = images(300), images(200, seed=1)
SIGNAL = (2, 32)
ROOM = 1.25
"""How far the error on unseen inputs may exceed ε, which is an estimate from the data."""


def layers(report: Report) -> dict[str, LayerChange]:
    return {layer.name: layer for layer in report.layers}


def counts(report: Report) -> dict[str, int]:
    return {layer.name: layer.neurons_after for layer in report.layers}


def halves(a: Array) -> Array:
    return a.astype(np.float16)


@pytest.mark.parametrize("eps", [0.1, 0.3])
@pytest.mark.parametrize("name", ["wide", "last"])
def test_one_layer_stays_within_eps_on_inputs_never_seen(eps: float, name: str) -> None:
    model = residual()
    result = onnxfde.optimize(model, eps, layers=name, data=X, quotient="refit", align=1)
    (layer,) = result.report.layers
    assert layer.neurons_after < layer.neurons_before
    assert 0 < layer.error <= eps
    assert 0 < layer.measured_error <= ROOM * eps
    assert (layer.kind, layer.activation, layer.blocks) == ("channels", "Relu", ())
    weight = {"wide": "W", "last": "L"}[name]
    assert shapes(result.model)[weight] == [layer.neurons_after, 8, 3, 3]
    if name == "last":
        assert 0 < relative_change(model, result.model, UNSEEN) <= ROOM * eps


@pytest.mark.parametrize("quotient", ["refit", "minimal"])
def test_errors_of_several_layers_add_up_as_squares_at_most(quotient: Any) -> None:
    """What an axis behind another one inherits is not taken from its own ε."""
    model = residual()
    result = onnxfde.optimize(model, 0.2, data=X, quotient=quotient, align=1)
    wide, last = result.report.layers
    assert max(wide.error, last.error) <= 0.2
    assert wide.measured_error <= ROOM * 0.2
    assert last.measured_error <= ROOM * 0.2 * np.sqrt(2)
    assert 0 < relative_change(model, result.model, UNSEEN) <= ROOM * 0.2 * np.sqrt(2)


def test_a_larger_eps_leaves_fewer_channels() -> None:
    left = [counts(onnxfde.optimize(residual(), eps, data=X, quotient="refit", align=1).report)
            for eps in (0.05, 0.2, 0.5)]  # fmt: skip
    for name in ("wide", "last"):
        several = [found[name] for found in left]
        assert several == sorted(several, reverse=True)
        assert several[0] > several[-1] >= 1


def test_moving_weights_downhill_helps() -> None:
    model = residual(W=normal(16, 8, 3, 3))
    given: Any = {"keep": 0.5, "layers": "wide", "data": X}
    refit, minimal = (
        onnxfde.optimize(model, quotient=quotient, **given).report.layers[0]
        for quotient in ("refit", "minimal")
    )
    assert refit.neurons_after == minimal.neurons_after == 8
    assert minimal.measured_error < 0.97 * refit.measured_error


@pytest.mark.parametrize("limit", [0.9, 0.6, 0.4])
@pytest.mark.parametrize("what", ["max_macs", "max_params"])
def test_limits_are_kept_and_used(what: Any, limit: float) -> None:
    given: Any = {what: limit, "data": X, "quotient": "refit", "align": 1}
    report = onnxfde.optimize(residual(), **given).report
    size = report.multiply_adds if what == "max_macs" else report.parameters
    assert size is not None
    assert 0.9 * limit * size.before <= size.after <= limit * size.before
    assert all(layer.eps is None for layer in report.layers)


def test_a_limit_may_be_a_number_and_dense_layers_count() -> None:
    model = build(
        "[one] h = Gemm <transB = 1> (x, W) r = Relu(h) [two] y = Gemm <transB = 1> (r, V)",
        inputs="float[N,6] x",
        outputs="float[N,3] y",
        W=alike(20, 6, kinds=5),
        V=normal(3, 20),
    )
    x = np.random.default_rng(0).normal(size=(200, 6)).astype(np.float32)
    report = onnxfde.optimize(model, max_params=100, data=x).report
    (layer,) = report.layers
    assert (layer.kind, layer.name) == ("dense", "one")
    assert 90 <= report.parameters.after <= 100


def test_a_limit_that_cannot_be_kept_is_refused() -> None:
    with pytest.raises(
        OptionError, match="--max-params: 200 parameters are too few, with one unit"
    ):
        onnxfde.optimize(residual(), max_params=200, data=X, quotient="refit")


def test_counts_are_multiples_above_an_eps_and_below_a_limit() -> None:
    wide = residual(L=alike(40, 8, 3, 3, kinds=7), G=normal(4, 40))
    free = counts(onnxfde.optimize(wide, 0.3, data=X, quotient="refit", align=1).report)
    usual = counts(onnxfde.optimize(wide, 0.3, data=X, quotient="refit").report)
    assert usual == {name: -(-count // 8) * 8 for name, count in free.items()} != free
    limited = onnxfde.optimize(wide, max_macs=0.6, data=X, quotient="refit").report
    assert all(count % 8 == 0 for count in counts(limited).values())
    assert limited.multiply_adds is not None
    assert limited.multiply_adds.after <= 0.6 * limited.multiply_adds.before


def test_a_count_is_taken_as_it_is_unless_multiples_are_asked_for() -> None:
    given: Any = {"data": X, "quotient": "refit"}
    assert counts(onnxfde.optimize(residual(), neurons=13, **given).report) == {
        "wide": 13,
        "last": 13,
    }
    asked = onnxfde.optimize(residual(), keep=0.7, align=4, **given).report
    assert counts(asked) == {"wide": 12, "last": 16}
    too_few = onnxfde.optimize(residual(), neurons=3, align=8, **given).report
    assert counts(too_few) == {"wide": 3, "last": 3}


def test_layers_are_chosen_by_name() -> None:
    given: Any = {"data": X, "quotient": "refit"}
    assert counts(onnxfde.optimize(residual(), keep=0.5, layers="w*", **given).report) == {
        "wide": 8
    }
    assert counts(onnxfde.optimize(residual(), keep=0.5, skip="w*", **given).report) == {"last": 12}
    with pytest.raises(OptionError, match="no layer is called 'wild'; the layers are wide, last"):
        onnxfde.optimize(residual(), keep=0.5, layers="wild", **given)


def test_eps_of_one_layer_leaves_the_others_without_loss() -> None:
    """A channel that no image of the data switches on may be on for others: it stays at ε = 0."""
    bias = normal(16)
    bias[3] = -30.0
    model = residual(b=bias)
    given: Any = {"data": X, "quotient": "refit", "align": 1}
    report = onnxfde.optimize(model, 0, layer_eps={"last": 0.3}, **given).report
    assert layers(report)["wide"].neurons_after == 16
    assert layers(report)["last"].neurons_after < 24
    assert layers(onnxfde.optimize(model, 0.01, **given).report)["wide"].neurons_after < 16


def test_a_chain_of_convolutions_is_measured_although_channels_of_its_targets_go() -> None:
    model = build(
        "[one] a = Conv(x, A) p = Relu(a) [two] b = Conv(p, B) q = Relu(b) [three] y = Conv(q, C)",
        inputs="float[N,3,8,8] x",
        outputs="float[N,4,A,B] y",
        A=alike(16, 3, 3, 3, kinds=5),
        B=alike(16, 16, 3, 3, kinds=5),
        C=normal(4, 16, 1, 1),
    )
    result = onnxfde.optimize(model, keep=0.5, data=X, quotient="refit")
    one, two = result.report.layers
    assert (one.neurons_after, two.neurons_after) == (8, 8)
    assert 0 < one.measured_error <= ROOM * one.error
    change = relative_change(model, result.model, UNSEEN)
    np.testing.assert_allclose(two.measured_error, change, rtol=0.3, atol=0)


def test_planted_channels_go_without_loss() -> None:
    """Dead, constant, equal and proportional channels of both axes."""
    wide, bias, last = normal(16, 8, 3, 3), normal(16), normal(24, 8, 3, 3)
    wide[0], bias[0] = 0, -1.0  # dead behind Relu
    wide[1], bias[1] = 0, 1.0  # constant, but not beyond the border: stays
    wide[2], bias[2] = wide[9], bias[9]
    wide[3], bias[3] = 3 * wide[9], 3 * bias[9]
    last[5], last[6] = last[7], 0
    model = residual(W=wide, b=bias, L=last)
    result = onnxfde.optimize(model, 0)
    assert counts(result.report) == {"wide": 16 - 3, "last": 24 - 2}
    (old,), (new,) = outputs_of(model, UNSEEN), outputs_of(result.model, UNSEEN)
    np.testing.assert_allclose(new, old, rtol=0, atol=2e-5)


def test_a_range_that_was_given_removes_more() -> None:
    bias = normal(16)
    bias[3] = -60.0
    report = onnxfde.optimize(residual(b=bias), 0, input_range=(-1, 1)).report
    wide = layers(report)["wide"]
    assert (wide.neurons_after, wide.range_only) == (15, True)
    assert "--input-range" in (wide.remark or "")
    anywhere = layers(onnxfde.optimize(residual(b=bias), 0).report)["wide"]
    assert (anywhere.neurons_after, anywhere.range_only) == (16, False)


def test_a_range_is_not_used_where_as_few_are_left_without_it() -> None:
    """Two equal channels, which are off in the range."""
    off = np.repeat(-np.abs(normal(1, 3, 3, 3)), 2, axis=0)
    model = build("h = Conv(x, W, b) r = Relu(h) y = Conv(r, V)", "float[N,3,8,8] x",
                  "float[N,4,P,Q] y", W=off, b=np.full(2, -0.1, np.float32),
                  V=normal(4, 2, 1, 1))  # fmt: skip
    result = onnxfde.optimize(model, 0, input_range=(0, 1))
    found = layers(result.report)["h"]
    assert (found.neurons_after, found.range_only) == (1, False)
    (old,), (new,) = outputs_of(model, UNSEEN), outputs_of(result.model, UNSEEN)
    np.testing.assert_allclose(new, old, rtol=0, atol=2e-5)


def test_two_readers_are_fitted_to_their_own_targets() -> None:
    model = with_branches()
    report = onnxfde.optimize(model, 0.2, data=X, align=1)
    (layer,) = report.report.layers
    assert layer.neurons_after < 16
    assert layer.measured_error <= ROOM * 0.2
    assert "2 nodes read its units" in (layer.remark or "")
    assert relative_change(model, report.model, UNSEEN) <= ROOM * 0.2


@pytest.mark.parametrize(
    ("model", "shape"), [(of_signals(), SIGNAL), (with_resize(), (3, 8, 8))], ids=["1-D", "Resize"]
)
def test_other_networks(model: ModelProto, shape: tuple[int, ...]) -> None:
    result = onnxfde.optimize(model, 0.2, data=images(300, shape=shape), align=1)
    (layer,) = result.report.layers
    assert layer.neurons_after < layer.neurons_before
    unseen = images(100, seed=1, shape=shape)
    assert 0 < relative_change(model, result.model, unseen) <= ROOM * 0.2


def test_squeeze_and_excite_is_left_alone_with_its_reason() -> None:
    report = onnxfde.optimize(squeezed(), 0.3, data=X).report
    reasons = {refusal.node: refusal.reason for refusal in report.refused}
    assert "as a gate or squeeze-and-excite does" in reasons["wide"]
    assert [layer.name for layer in report.layers] == ["inner"]


def test_half_precision() -> None:
    model = residual()
    whole: dict[str, Any] = {t.name: halves(a) for t, a in zip(
        model.graph.initializer, [np.frombuffer(t.raw_data, np.float32).reshape(t.dims)
                                  for t in model.graph.initializer], strict=True)}  # fmt: skip
    half = build(
        "[wide] h = Conv <pads = [1, 1, 1, 1]> (x, W, b) r = Relu(h) [back] y = Conv(r, V, c)",
        inputs="float16[N,8,8,8] x",
        outputs="float16[N,8,6,6] y",
        **dict[str, Any]((name, whole[name]) for name in "WbVc"),
    )
    x = images(200, shape=(8, 8, 8)).astype(np.float16)
    result = onnxfde.optimize(half, 0.2, data=x, align=1)
    (layer,) = result.report.layers
    assert layer.dtype == "float16"
    assert layer.neurons_after < 16
    assert {t.data_type for t in result.model.graph.initializer} == {10}
    unseen = images(50, seed=1, shape=(8, 8, 8)).astype(np.float16)
    assert relative_change(half, result.model, unseen) <= ROOM * 0.2


def test_without_data_nothing_is_lost_unless_it_is_asked_for() -> None:
    report = onnxfde.optimize(residual()).report
    assert counts(report) == {"wide": 16, "last": 24}
    assert all("give --data" in (layer.remark or "") for layer in report.layers)


def test_made_up_images_where_more_is_asked_for() -> None:
    report = onnxfde.optimize(residual(), keep=0.5, quotient="refit").report
    assert counts(report) == {"wide": 8, "last": 12}
    for layer in report.layers:
        assert "fitted to made-up images" in (layer.remark or "")
        assert "less than three quarters" in (layer.remark or "")
    assert report.verification is not None
    assert report.verification.source == "dead-leaves images"
    assert "made-up images" in (report.assumed or "")
    gentle = onnxfde.optimize(residual(), 0.02, quotient="refit", align=1).report
    assert all(layer.measured_error <= ROOM * 0.02 * np.sqrt(2) for layer in gentle.layers)
    assert counts(gentle) != counts(report)


def test_what_is_no_image_needs_data() -> None:
    report = onnxfde.optimize(of_signals(), 0.3).report
    (layer,) = report.layers
    assert layer.neurons_after == 16
    assert "input 'x' is N×2×32" in (layer.remark or "")
    assert "give --data" in (layer.remark or "")
    with pytest.raises(DataError, match="--max-macs needs --data: input 'x' is N×2×32"):
        onnxfde.optimize(of_signals(), max_macs=0.5)


def test_the_papers_rules_are_about_dense_layers() -> None:
    report = onnxfde.optimize(residual(), 0.3, semantics="paper").report
    reasons = {refusal.node: refusal.reason for refusal in report.refused}
    assert reasons["wide"] == (
        "channels are merged with --semantics budget only; paper is about dense layers"
    )
    assert "can be merged (see the reasons)" in (report.unchanged or "")


def test_a_time_limit_ends_the_descent_and_is_told() -> None:
    given: Any = {"keep": 0.5, "data": X}
    cut = onnxfde.optimize(residual(), time_limit=1e-6, **given)
    refit = onnxfde.optimize(residual(), quotient="refit", **given)
    for layer in cut.report.layers:
        assert layer.cut
        assert "the time limit ended" in (layer.remark or "")
    (one,), (other,) = outputs_of(cut.model, UNSEEN), outputs_of(refit.model, UNSEEN)
    np.testing.assert_array_equal(one, other)


def three_in_a_row() -> ModelProto:
    """Convolutions of which each reads what the one before makes."""
    return build(
        "[one] a = Conv <pads = [1, 1, 1, 1]> (x, A) b = Relu(a) [two] c = Conv(b, B) d = Relu(c) "
        "[three] e = Conv(d, C) f = Relu(e) [last] y = Conv(f, D)",
        inputs="float[N,3,8,8] x",
        outputs="float[N,4,P,Q] y",
        A=normal(8, 3, 3, 3),
        B=normal(24, 8, 3, 3),
        C=normal(80, 24, 3, 3),
        D=normal(4, 80, 1, 1),
    )


def merged_until(tick: float, model: ModelProto | None = None) -> tuple[PassResult, float]:
    """Channels merged until a clock that ticks at each look has ticked so often; and its time."""
    clock = itertools.count()
    deadline = Deadline(tick, lambda: float(next(clock)))
    model = model or residual(L=alike(240, 8, 3, 3, kinds=7), G=normal(4, 240))
    data = make_samples({"x": X}, input_specs(Graph(model)), "test")
    context = Context(InputSource(data=data), deadline=deadline)
    merge = MergeChannels(keep=0.5, quotient="minimal")
    return merge.apply(Graph(model), context), float(next(clock))


def test_layers_that_ran_out_of_their_part_of_the_time_get_what_others_left() -> None:
    whole, needed = merged_until(1e9)
    found, _ = merged_until(1.5 * needed)
    assert not any(layer.cut for layer in whole.layers + found.layers)


@pytest.mark.parametrize("share", [0.5, 0.9, 1.2, 1.6])
def test_in_a_chain_layers_that_ran_out_of_time_stay_as_they_are(share: float) -> None:
    """What one of them made in the original is no longer made in full."""
    _, needed = merged_until(1e9, three_in_a_row())
    found, _ = merged_until(share * needed, three_in_a_row())
    assert [layer.neurons_after for layer in found.layers] == [4, 12, 40]


def test_data_that_is_fed_row_by_row_counts_every_image() -> None:
    model = build(
        "[first] c = Conv <pads = [1, 1, 1, 1]> (x, W) q = Relu(c) [read] y = Conv(q, V)",
        inputs="float[4,3,8,8] x",
        outputs="float[4,4,8,8] y",
        W=normal(8, 3, 3, 3),
        V=normal(4, 8, 1, 1),
    )
    data = images(480)
    by_batch, by_row = (
        onnxfde.optimize(model, keep=0.5, data=rows).report.layers[0].measured_error
        for rows in (data, data.reshape(120, 4, 3, 8, 8))
    )
    assert by_row == pytest.approx(by_batch, rel=0.05)


def test_a_larger_eps_is_advised_where_nothing_merges() -> None:
    report = onnxfde.optimize(residual(), 0.001, data=X, align=1).report
    assert report.unchanged == "no channels merge at this setting; a larger ε merges some"
    again = onnxfde.optimize(residual(), 0.3, data=X, align=1, quotient="refit").report
    assert again.unchanged is None


def depthwise(units: int = 6) -> ModelProto:
    """1×1 → depthwise 3×3 → 1×1."""
    body = (
        f"h = Conv(x, W) a = Relu(h) d = Conv <group = {units}> (a, D) r = Relu(d) y = Conv(r, V)"
    )
    weights: Any = {
        "W": normal(units, 3, 1, 1),
        "D": normal(units, 1, 3, 3),
        "V": normal(4, units, 1, 1),
    }
    return build(body, "float[N,3,8,8] x", "float[N,4,6,6] y", **weights)


@pytest.mark.parametrize("quotient", ["refit", "minimal"])
def test_a_depthwise_convolution_may_end_with_one_channel(quotient: Any) -> None:
    """With one group it looks like a convolution that sums over its channels."""
    report = onnxfde.optimize(depthwise(), neurons=1, data=X, quotient=quotient).report
    assert counts(report) == {"h": 1}
    assert report.parameters.after == report.layers[0].parameters_after + 4
    assert report.layers[0].measured_error > 0.1
    assert not report.layers[0].remark


@pytest.mark.parametrize(
    ("shapes", "reader", "weight"),
    [
        (([0, 6, -1], [-1, 6, 8, 8]), "Conv(s, V)", normal(4, 6, 1, 1)),
        (([0, 6, -1], [0, 1, 6 * 64]), "MatMul(s, V)", normal(6 * 64, 4)),
    ],
)
def test_a_reshape_may_end_with_one_channel(
    shapes: tuple[list[int], list[int]], reader: str, weight: Any
) -> None:
    """Where the units are does not follow from lengths of 1."""
    body = "h = Conv(x, W) a = Relu(h) r = Reshape(a, one) b = Relu(r) s = Reshape(b, other) "
    body += f"y = {reader}"
    one, other = (np.array(shape, np.int64) for shape in shapes)
    equal: Any = {"W": np.repeat(normal(1, 3, 1, 1), 6, axis=0), "V": weight}
    rank = "N,4,P,Q" if "Conv(s" in body else "N,1,4"
    model = build(body, "float[N,3,8,8] x", f"float[{rank}] y", one=one, other=other, **equal)
    result = onnxfde.optimize(model, 0.0)
    assert counts(result.report) == {"h": 1}
    (old,), (new,) = outputs_of(model, X), outputs_of(result.model, X)
    np.testing.assert_allclose(new, old, rtol=0, atol=2e-5)


def test_a_limit_on_work_counts_the_maps_of_the_data() -> None:
    wide, pooled = (normal(16, n, 3, 3) for n in (3, 16))
    body = "a = Conv(x, W) b = Relu(a) m = MaxPool <kernel_shape = [3, 3], strides = [3, 3]> (b) "
    body += "c = Conv(m, V) d = Relu(c) y = Conv(d, U)"
    sizes = {"float[N,3,H,W] x": "float[N,4,P,Q] y", "float[N,3,17,17] x": "float[N,4,3,3] y"}
    maps = images(200, shape=(3, 17, 17))
    found = [
        onnxfde.optimize(
            build(body, given, made, W=wide, V=pooled, U=normal(4, 16, 1, 1)),
            max_macs=0.5, data=maps, quotient="refit",
        ).report.multiply_adds
        for given, made in sizes.items()
    ]  # fmt: skip
    assert found[0] == found[1]
    assert found[0] is not None
    assert found[0].after <= 0.5 * found[0].before


@pytest.mark.parametrize(
    "body", ["m, i = MaxPool <kernel_shape = [2, 2]> (a)", "m, i = Dropout(a)"]
)
def test_shapes_of_outputs_that_nobody_reads_follow(body: str) -> None:
    twice = np.repeat(normal(3, 3, 3, 3), 2, axis=0)
    model = build(f"h = Conv(x, W) a = Relu(h) {body} y = Conv(m, V)", "float[1,3,8,8] x",
                  "float[1,4,P,Q] y", W=twice, V=normal(4, 6, 1, 1))  # fmt: skip
    model = onnx.shape_inference.infer_shapes(model)
    result = onnxfde.optimize(model, 0.0)
    assert counts(result.report)["h"] < 6
    onnx.checker.check_model(result.model, full_check=True)


def test_a_model_that_would_grow_stays() -> None:
    body = "a = Conv(x, W) b = Relu(a) c = Conv(b, W) d = Relu(c) e = Conv(d, W) f = Relu(e) "
    model = build(f"{body} y = Conv(f, W)", "float[N,6,9,9] x", "float[N,6,1,1] y",
                  W=normal(6, 6, 3, 3))  # fmt: skip
    report = onnxfde.optimize(model, keep=0.8, data=images(200, shape=(6, 9, 9))).report
    assert "several nodes share weights that would be copied" in (report.unchanged or "")
    assert report.parameters.after == report.parameters.before
