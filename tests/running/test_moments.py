"""Moments of readers: what they are, which parts are run for them, and what refits make of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from onnxfde.errors import RuntimeUnavailable
from onnxfde.graph.axes import Axis
from onnxfde.graph.edit_axes import keep_units, write_reader
from onnxfde.graph.find_axes import find_axes
from onnxfde.graph.input_specs import input_specs
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.neurons.block_elimination import eliminate_units
from onnxfde.progress import Progress
from onnxfde.row_split import split_rows
from onnxfde.running import moments
from onnxfde.running.input_source import InputSource
from onnxfde.running.moments import (
    curve_moments,
    in_groups,
    in_small_runs,
    moment_bytes,
    refit_moments,
    refitted_weights,
)
from onnxfde.running.recording import Recording
from onnxfde.running.samples import make_samples
from tests.models import Array, build, outputs_of
from tests.running.square_chain import PartRun, watch_parts

CHANNELS, INNER = 4, 6
IMAGES = np.random.default_rng(5).normal(size=(40, CHANNELS, 6, 6)).astype(np.float32)


def residual_network(blocks: int = 2) -> ModelProto:
    """x → [Conv 3×3 → Relu → Conv 3×3 → BatchNormalization → + → Relu] … → mean → Gemm."""
    rng = np.random.default_rng(0)
    body, weights, source = "", dict[str, Any](), "x"
    for i in range(blocks):
        body += (
            f"[first{i}] h{i} = Conv <pads = [1,1,1,1]> ({source}, U{i}, u{i}) r{i} = Relu(h{i}) "
            f"[second{i}] o{i} = Conv <pads = [1,1,1,1]> (r{i}, V{i}) "
            f"n{i} = BatchNormalization (o{i}, g{i}, t{i}, m{i}, v{i}) "
            f"s{i} = Add(n{i}, {source}) a{i} = Relu(s{i}) "
        )
        shapes = {
            "U": (INNER, CHANNELS, 3, 3),
            "u": (INNER,),
            "V": (CHANNELS, INNER, 3, 3),
            **dict.fromkeys("gtmv", (CHANNELS,)),
        }
        for name, shape in shapes.items():
            values = rng.normal(size=shape) / (4 if len(shape) > 1 else 1)
            values = np.abs(values) + 0.5 if name in "gv" else values
            weights[f"{name}{i}"] = values.astype(np.float32)
        source = f"a{i}"
    return build(
        f"{body} p = GlobalAveragePool({source}) f = Flatten(p) y = Gemm <transB = 1> (f, W)",
        inputs=f"float[N,{CHANNELS},6,6] x",
        W=rng.normal(size=(2, CHANNELS)).astype(np.float32),
        **weights,
    )


def recorded(model: ModelProto, rows: Array = IMAGES, batch: int = 16) -> Recording:
    graph = Graph(model)
    samples = make_samples({"x": rows}, input_specs(graph), "test")
    few = replace(samples, batch=batch)
    return Recording.of(graph, InputSource(data=samples), Progress(), few)


def inner_axes(graph: Graph) -> list[Axis]:
    return [axis for axis in find_axes(graph)[0] if axis.units == INNER]


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[PartRun]:
    return watch_parts(monkeypatch)


def test_a_network_fits_itself_without_an_error() -> None:
    recording = recorded(residual_network())
    for axis, found in curve_moments(recording, inner_axes(recording.graph)):
        errors = eliminate_units(found).errors
        assert errors[INNER] < 1e-5 < 1e-2 < errors[INNER - 1] < errors[0] <= 1.5
        assert len(found) == len(axis.readers) == 1


def test_moments_are_those_of_all_positions_where_there_are_few() -> None:
    recording = recorded(residual_network(1))
    ((axis, (found,)),) = curve_moments(recording, inner_axes(recording.graph))
    found = found.with_held
    run = next(recorded(residual_network(1), batch=64).batches(["r0", "n0", "s0"]))
    assert found.gram[-1, -1] == 1
    padded = np.pad(run["r0"].astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
    middle = axis.readers[0].columns[:, 4]
    np.testing.assert_allclose(
        found.gram[middle, -1], padded[:, :, 1:-1, 1:-1].mean(axis=(0, 2, 3)), rtol=1e-6
    )
    np.testing.assert_allclose(
        found.gram[axis.readers[0].columns[:, 0], -1],
        padded[:, :, :6, :6].mean(axis=(0, 2, 3)),
        rtol=1e-6,
    )
    sums = run["s0"].astype(np.float64)
    assert found.norm == pytest.approx(float(sums.var(axis=(0, 2, 3)).sum()), rel=1e-6)
    wanted = (run["n0"] - axis.readers[0].shift[:, None, None]).astype(np.float64)
    assert found.power == pytest.approx(float((wanted**2).mean(axis=(0, 2, 3)).sum()), rel=1e-5)


def test_rows_of_some_samples_are_held_out() -> None:
    axes = inner_axes(recorded(residual_network(1)).graph)
    held = split_rows(40).choose
    kept = ~held
    ((_, (found,)),) = curve_moments(recorded(residual_network(1)), axes)
    ((_, (alone,)),) = curve_moments(recorded(residual_network(1), IMAGES[kept]), axes)
    ((_, (apart,)),) = curve_moments(recorded(residual_network(1), IMAGES[held]), axes)
    alone, apart = alone.with_held, apart.with_held
    np.testing.assert_allclose(found.gram, alone.gram, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.products, alone.products, rtol=1e-9, atol=1e-12)
    assert found.held is not None
    features, targets = found.held
    np.testing.assert_allclose(features.mean(axis=0), apart.gram[:-1, -1], rtol=0, atol=1e-6)
    np.testing.assert_allclose(targets.mean(axis=0), apart.products[-1], rtol=0, atol=1e-6)


def test_few_samples_are_all_needed() -> None:
    recording = recorded(residual_network(1), IMAGES[:9])
    ((_, (found,)),) = curve_moments(recording, inner_axes(recording.graph))
    assert found.held is None


def test_a_refit_to_all_units_changes_nothing() -> None:
    model = residual_network()
    original = recorded(model)
    copy = original.graph.copied()
    compressed = original.for_copy(copy)
    for axis in inner_axes(copy):
        found = refit_moments(original, compressed, axis)
        weights, bias = refitted_weights(axis.readers[0], found[0], np.arange(INNER))
        write_reader(copy, axis.readers[0], weights, bias)
        compressed.forget(axis.producer.value)
    np.testing.assert_allclose(
        outputs_of(copy.model, IMAGES)[0], outputs_of(model, IMAGES)[0], rtol=0, atol=1e-3
    )


def test_refits_with_the_targets_of_the_original_make_up_for_what_is_lost() -> None:
    model = residual_network(3)
    wanted = outputs_of(model, IMAGES)[0]

    def error(refit: bool) -> float:
        original = recorded(model)
        copy = original.graph.copied()
        compressed = original.for_copy(copy)
        for axis in inner_axes(copy):
            found = refit_moments(original, compressed, axis)
            kept = np.sort(eliminate_units(found).order[: INNER - 2])
            weights = refitted_weights(axis.readers[0], found[0], kept)
            left = keep_units(copy, axis, kept)
            if refit:
                write_reader(copy, left.readers[0], *weights)
            compressed.forget(axis.producer.value)
        return float(np.linalg.norm(outputs_of(copy.model, IMAGES)[0] - wanted))

    assert error(refit=True) < 0.7 * error(refit=False)


def test_values_between_axes_are_kept(parts: list[PartRun]) -> None:
    original = recorded(residual_network(3))
    copy = original.graph.copied()
    compressed = original.for_copy(copy)
    for axis in inner_axes(copy):
        refit_moments(original, compressed, axis)
        compressed.forget(axis.producer.value)
    assert [part.wanted for part in parts] == [
        ["s0"], ["r0"], ["s1"], ["r1", "a0"], ["s2"], ["r2", "a1"]
    ]  # fmt: skip
    assert [part.reads for part in parts] == [["x"], ["x"], ["s0"], ["x"], ["s1"], ["a0"]]


def test_large_values_are_not_kept(parts: list[PartRun], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "REMEMBERED_BYTES", 1000)
    original = recorded(residual_network())
    compressed = original.for_copy(original.graph.copied())
    for axis in inner_axes(compressed.graph):
        refit_moments(original, compressed, axis)
        compressed.forget(axis.producer.value)
    assert [part.reads for part in parts] == [["x"]] * 4
    assert not original.recorded


def test_axes_are_measured_in_groups(parts: list[PartRun], monkeypatch: pytest.MonkeyPatch) -> None:
    recording = recorded(residual_network(3))
    axes = inner_axes(recording.graph)
    monkeypatch.setattr(moments, "GROUP_BYTES", 2 * moment_bytes(axes[0]))
    assert [len(group) for group in in_groups(axes)] == [2, 1]
    together = {axis.name: found for axis, found in curve_moments(recording, axes)}
    assert [part.wanted for part in parts] == [["s0", "r0", "s1", "r1", "a0"], ["s2", "r2", "a1"]]
    for axis in axes:
        ((_, (alone,)),) = curve_moments(recording, [axis])
        np.testing.assert_allclose(alone.gram, together[axis.name][0].gram, rtol=1e-12)


def test_runs_are_small_enough_for_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(residual_network())
    samples = make_samples({"x": IMAGES}, input_specs(graph), "test")
    monkeypatch.setattr(moments, "RUN_NUMBERS", 7 * INNER * 36)
    assert in_small_runs(samples, graph).batch == 7


def test_values_that_are_not_finite_are_refused() -> None:
    recording = recorded(residual_network(), np.full_like(IMAGES, 3e38))
    with pytest.raises(RuntimeUnavailable, match="'s0' is not finite"):
        list(curve_moments(recording, inner_axes(recording.graph)))
