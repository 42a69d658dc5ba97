"""Values inside a network are computed once, and after an edit only those behind it again."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import onnxfde
from onnxfde.errors import RuntimeUnavailable
from onnxfde.graph.match import find_layers
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.passes import MergeNeurons
from onnxfde.progress import Progress
from onnxfde.running.input_source import InputSource
from onnxfde.running.layer_inputs import record_layers
from onnxfde.running.open_files import open_data
from onnxfde.running.recording import Recording
from tests.models import Array, build
from tests.running.square_chain import (
    ROWS,
    WIDTH,
    PartRun,
    full_run,
    source_of,
    square_chain,
    watch_parts,
)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[PartRun]:
    return watch_parts(monkeypatch)


def recorded(model: ModelProto, rows: Array = ROWS, with_results: bool = False) -> Recording:
    graph = Graph(model)
    recording = Recording.of(graph, source_of(model, rows), Progress())
    record_layers(recording, find_layers(graph)[0], with_results)
    return recording


def test_one_run_records_the_inputs_of_all_layers(parts: list[PartRun]) -> None:
    recording = recorded(square_chain())
    (part,) = parts
    assert part.reads == ["x"]
    assert part.computes == ["h1", "s1", "h2", "s2", "h3", "s3", "h4", "s4"]
    assert part.wanted == ["s1", "s2", "s3", "s4"]
    assert part.batches == [1024, 476]
    recording.record(["x", "s4", "s1"])
    assert len(parts) == 1


def test_results_are_recorded_in_the_same_run(parts: list[PartRun]) -> None:
    recorded(square_chain(3), with_results=True)
    assert [part.wanted for part in parts] == [["h2", "s1", "h3", "s2", "y"]]


@pytest.mark.parametrize("value", ["s1", "h3", "s4"])
def test_recorded_values_are_those_of_a_run_of_the_whole_network(value: str) -> None:
    model = square_chain()
    record = recorded(model).rows(value, "rows", WIDTH)
    found, per_sample = record.values, record.each
    assert per_sample == 1
    np.testing.assert_allclose(found, full_run(model, value), rtol=0, atol=1e-6)


def test_after_an_edit_only_what_lies_behind_it_is_run_again(parts: list[PartRun]) -> None:
    original = recorded(square_chain())
    edited = MergeNeurons(eps=0, layers=("l3",)).apply(original.graph).graph
    del parts[:]
    current = original.for_copy(edited)
    current.forget("h3")
    assert current.edited == {"h3", "s3", "h4", "s4", "h5", "s5", "y"}
    current.record(["s1", "s2"])
    assert parts == []
    found = current.rows("s4", "rows", WIDTH).values
    assert [(p.reads, p.computes) for p in parts] == [(["s2"], ["h3", "s3", "h4", "s4"])]
    np.testing.assert_allclose(found, full_run(edited.model, "s4"), rtol=0, atol=1e-6)
    assert current.rows("s3", "rows", WIDTH // 2).values.shape == (len(ROWS), WIDTH // 2)


def test_an_edit_of_the_copy_leaves_the_original_recording_alone(parts: list[PartRun]) -> None:
    original = recorded(square_chain())
    current = original.for_copy(original.graph.copied())
    current.forget("h1")
    assert (original.edited, set(original.recorded)) == (set(), {"s1", "s2", "s3", "s4"})
    assert current.recorded == {}
    original.rows("s4", "rows", WIDTH)
    assert len(parts) == 1


def test_a_part_that_fails_does_not_take_earlier_values_away(parts: list[PartRun]) -> None:
    model = square_chain(3, unknown=True)
    recording = recorded(model)
    assert set(recording.recorded) == {"s1"}
    assert set(recording.failed) == {"t"}
    assert "not.known" in recording.failed["t"]
    assert [(p.reads, p.wanted, p.batches) for p in parts] == [
        (["x"], ["s1", "t"], []),
        (["x"], ["s1"], [1024, 476]),
        (["s1"], ["t"], []),
    ]
    found = recording.rows("s1", "rows", WIDTH).values
    np.testing.assert_allclose(found, full_run(square_chain(1), "s1"), rtol=0, atol=1e-6)
    with pytest.raises(RuntimeUnavailable, match=r"not\.known"):
        recording.rows("t", "rows", WIDTH)
    assert len(parts) == 3


def test_what_failed_is_tried_again_after_an_edit_before_it() -> None:
    recording = recorded(square_chain(3, unknown=True))
    recording.forget("h1")
    assert (recording.recorded, recording.failed) == ({}, {})


def test_a_fixed_batch_is_recorded_batch_by_batch(parts: list[PartRun]) -> None:
    model = square_chain(batch="4")
    recording = recorded(model, ROWS[:22])
    assert [part.batches for part in parts] == [[4] * 5]
    found = recording.rows("s4", "rows", WIDTH).values
    dynamic = full_run(square_chain(), "s4", ROWS[:20])
    np.testing.assert_allclose(found, dynamic, rtol=0, atol=1e-6)
    current = recording.for_copy(recording.graph.copied())
    current.forget("h4")
    np.testing.assert_array_equal(current.rows("s4", "rows", WIDTH).values, found)
    assert (parts[1].reads, parts[1].batches) == (["s3"], [4] * 5)


def test_without_samples_every_value_has_failed(parts: list[PartRun]) -> None:
    model = square_chain(2)
    sequence = build("z = SequenceLength(q)", inputs="seq(float[3]) q", outputs="int64 z")
    model.graph.input.extend(sequence.graph.input)
    model.graph.node.extend(sequence.graph.node)
    recording = Recording.of(Graph(model), InputSource(), Progress())
    record_layers(recording, find_layers(recording.graph)[0], with_results=True)
    assert (parts, recording.recorded) == ([], {})
    with pytest.raises(RuntimeUnavailable, match="input 'q' is not a tensor"):
        recording.rows("s1", "rows", WIDTH)


def test_recording_tells_how_far_it_is() -> None:
    model, told = square_chain(2), list[tuple[int, int]]()
    progress = Progress(at=lambda done, total: told.append((done, total)))
    Recording.of(Graph(model), source_of(model), progress).record(["s1"])
    assert told == [(1, 2), (2, 2)]


def test_layers_behind_a_merged_one_are_merged_although_no_samples_can_be_made() -> None:
    rng = np.random.default_rng(0)
    shapes = {"A": (3, 18), "B": (18, 3), "C": (3, 18), "D": (18, 2)}
    weights: dict[str, Any] = {
        name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()
    }
    model = build(
        "[one] h = Gemm(x, A) s = Mul(h, h) k = Gemm(s, B) t = Cos(k) "
        "[two] g = Gemm(t, C) r = Mul(g, g) y = Gemm(r, D)",
        **weights,
    )
    model.graph.input.append(onnx.helper.make_tensor_sequence_value_info("q", 1, [None]))
    layers = onnxfde.optimize(model, eps=0.1).report.layers
    assert [layer.changed for layer in layers] == [True, True]
    assert "input 'q' is not a tensor" in (layers[1].remark or "")


@pytest.mark.parametrize("samples", [3, 500])
def test_of_many_rows_those_of_whole_samples_are_given(
    samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxfde.running.recording.LAYER_ROWS", 100)
    x = np.broadcast_to(np.arange(samples, dtype=np.float32)[:, None, None], (samples, 7, 2))
    graph = Graph(build("y = Identity(x)", inputs="float[N,7,2] x", outputs="float[N,7,2] y"))
    source, _ = open_data(graph, {"x": np.ascontiguousarray(x)}, (-1.0, 1.0))
    found = Recording.of(graph, source, Progress()).rows("x", "rows", 2)
    rows, per_sample = found.values, found.each
    assert per_sample == 7
    groups = rows.reshape(-1, 7, 2)
    assert len(groups) == min(samples, 14)
    assert (groups == groups[:, :1, :1]).all()
    assert groups[[0, -1], 0, 0].tolist() == [0, samples - 1]


def test_a_value_without_elements_cannot_be_measured() -> None:
    graph = Graph(build("y = Identity(x)", inputs="float[N,0,3] x", outputs="float[N,0,3] y"))
    source, _ = open_data(graph, None, (-1.0, 1.0))
    with pytest.raises(RuntimeUnavailable, match="'x' is empty"):
        Recording.of(graph, source, Progress()).rows("x", "rows", 3)
