"""Changes of what counts behind an axis: those that numpy finds in onnxruntime's values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from onnxfde.errors import RuntimeUnavailable
from onnxfde.graph.axes import Axis
from onnxfde.graph.axis_readers import reader_bias, reader_matrix
from onnxfde.graph.edit_axes import keep_units, write_reader
from onnxfde.graph.find_axes import find_axes
from onnxfde.graph.input_specs import input_specs
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.progress import Progress
from onnxfde.running.input_source import InputSource
from onnxfde.running.recording import Recording
from onnxfde.running.samples import make_samples
from onnxfde.running.target_changes import ChangeSums, OutputMeter, TargetMeter
from tests.conv_models import images, residual, with_branches
from tests.models import Array, build, outputs_of

X = images(20)


def meter_of(model: ModelProto, work: Graph, x: Array = X, batch: int = 6) -> TargetMeter:
    graph = Graph(model)
    samples = make_samples({"x": x}, input_specs(graph), "test")
    recording = Recording.of(graph, InputSource(data=samples), Progress(), samples)
    recording.samples = replace(recording.samples, batch=batch)
    return TargetMeter(recording, recording.for_copy(work))


def axis_named(graph: Graph, name: str) -> Axis:
    return next(axis for axis in find_axes(graph)[0] if axis.name == name)


def scaled(graph: Graph, axis: Axis, factor: float) -> None:
    """Multiply what the first reader makes."""
    reader = axis.readers[0]
    matrix, bias = reader_matrix(graph, reader), reader_bias(graph, reader)
    write_reader(graph, reader, factor * matrix, factor * bias)


def value(model: ModelProto, name: str) -> Array:
    """A value inside a network."""
    copy = type(model)()
    copy.CopyFrom(model)
    del copy.graph.output[:]
    copy.graph.output.add().name = name
    return outputs_of(copy, X)[0]


def relative(old: Array, new: Array) -> float:
    axes = (0, 2, 3) if old.ndim == 4 else (0,)
    spread = np.linalg.norm(old - old.mean(axis=axes, keepdims=True))
    return float(np.linalg.norm(new - old) / spread)


@pytest.mark.parametrize(("name", "target"), [("wide", "a"), ("last", "y")])
def test_the_change_of_a_sum_and_of_a_row(name: str, target: str) -> None:
    model = residual()
    work = Graph(model).copied()
    axis = axis_named(work, name)
    meter = meter_of(model, work)
    scaled(work, axis, 0.9)
    expected = relative(value(model, target), value(work.model, target))
    assert expected > 0.01
    assert meter.change(axis).value == pytest.approx(expected, rel=1e-4, abs=0)


def test_after_a_descent_the_change_behind_the_activation_counts() -> None:
    """The sum 'a' goes through Relu to 'u': what is below 0 before and after does not matter."""
    model = residual()
    work = Graph(model).copied()
    axis, meter = axis_named(work, "wide"), meter_of(model, work)
    scaled(work, axis, 0.9)
    expected = relative(value(model, "u"), value(work.model, "u"))
    before = relative(value(model, "a"), value(work.model, "a"))
    assert abs(expected - before) > 0.01 * before
    assert meter.change(axis, descended=True).value == pytest.approx(expected, rel=1e-4, abs=0)


def test_one_axis_after_the_other_and_again() -> None:
    """What was remembered before an edit is not taken for what is there after it."""
    model = residual()
    work = Graph(model).copied()
    meter = meter_of(model, work)
    found: list[float] = []
    expected: list[float] = []
    for name, target in (("wide", "a"), ("last", "y"), ("wide", "a"), ("last", "y")):
        axis = axis_named(work, name)
        scaled(work, axis, 0.8)
        found.append(meter.change(axis).value)
        expected.append(relative(value(model, target), value(work.model, target)))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=0)
    assert found[2] > 1.3 * found[0]


def test_the_larger_change_of_two_readers_counts() -> None:
    model = with_branches()
    work = Graph(model).copied()
    axis, meter = axis_named(work, "wide"), meter_of(model, work)
    scaled(work, axis, 0.5)
    assert axis.readers[1].target == "q"
    np.testing.assert_array_equal(value(model, "q"), value(work.model, "q"))
    expected = relative(value(model, "p"), value(work.model, "p"))
    assert meter.change(axis).value == pytest.approx(expected, rel=1e-4, abs=0)


def test_no_change_is_none() -> None:
    model = residual()
    work = Graph(model).copied()
    assert meter_of(model, work).change(axis_named(work, "wide")).value == 0.0


@pytest.mark.parametrize("seed", range(8))
def test_the_change_of_a_constant_target_is_relative_to_its_size(seed: int) -> None:
    numbers = np.random.default_rng(seed).normal(size=4).astype(np.float32)
    before = np.broadcast_to(numbers[None, :, None, None], (50, 4, 7, 7)).copy()
    sums = ChangeSums()
    sums.add(before, before * np.float32(1.001), 1)
    assert sums.error.value == pytest.approx(1e-3, rel=1e-3)


def test_the_outputs_of_copies_that_run_from_their_axis_on() -> None:
    """Whatever was remembered for one axis, a copy gives what a run of all of it gives."""
    model = residual()
    meter = OutputMeter(meter_of(model, Graph(model).copied()).original)
    for name, factor in (("wide", 0.9), ("last", 0.7), ("wide", 0.5), ("last", 1.0)):
        copy = Graph(model).copied()
        axis = axis_named(copy, name)
        scaled(copy, axis, factor)
        expected = relative(value(model, "y"), value(copy.model, "y"))
        assert meter.change(copy, axis) == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert expected == 0.0


def test_another_shape_is_no_number() -> None:
    """The channels of what a reader makes must not go before its change is measured."""
    rng = np.random.default_rng(0)
    weights: dict[str, Any] = {
        name: rng.normal(size=shape).astype(np.float32)
        for name, shape in {"A": (6, 3, 3, 3), "B": (5, 6, 3, 3), "C": (4, 5, 1, 1)}.items()
    }
    model = build(
        "[one] a = Conv(x, A) [two] b = Conv(a, B) [three] y = Conv(b, C)",
        inputs="float[N,3,8,8] x",
        outputs="float[N,4,P,Q] y",
        **weights,
    )
    work = Graph(model).copied()
    one, two = find_axes(work)[0]
    meter = meter_of(model, work)
    keep_units(work, two, np.arange(2))
    with pytest.raises(RuntimeUnavailable, match="in the original"):
        meter.change(one)
