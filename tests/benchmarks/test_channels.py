"""The channels benchmark: other methods where the answer is known, cells and promises."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.channels.bars import bar_rows, beside_peers, little_more, points_lost, without_loss
from benchmarks.channels.cells import DRAWS, PEERS, Cell, all_cells, draws_of
from benchmarks.channels.latency import LatencyCell, latency_cells, runs_of
from benchmarks.channels.methods import (
    PRUNE,
    images_of,
    method_words,
    model_path,
    outputs_in_parts,
    size_words,
    sizes,
)
from benchmarks.channels.page import write_page
from benchmarks.channels.peers import (
    NotPossibleError,
    interpolated,
    largest_share,
    magnitude_pruned,
)
from benchmarks.channels.subjects import POOL, Subject
from benchmarks.common.found_cells import Found, Result
from onnxfde.numbers import Array

CHANNELS = 12


def conv_pair(path: Path, rows: Array, outgoing: Array) -> Path:
    """Conv 3×3 → Relu → Conv 3×3 with these weights."""
    units, inputs = rows.shape[:2]
    tensors = [
        numpy_helper.from_array(a.astype(np.float32), name)
        for name, a in {"W": rows, "b": np.zeros(units), "V": outgoing, "c": np.zeros(4)}.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "W", "b"], ["h"], "first", pads=[1] * 4),
        helper.make_node("Relu", ["h"], ["r"], "act"),
        helper.make_node("Conv", ["r", "V", "c"], ["y"], "second", pads=[1] * 4),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", channels, 8, 8])
        for name, channels in (("x", inputs), ("y", 4))
    ]
    graph = helper.make_graph(nodes, "pair", ends[:1], ends[1:], tensors)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    return path


def weights(seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(CHANNELS, 3, 3, 3)), rng.normal(size=(4, CHANNELS, 3, 3))


def images(count: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).normal(size=(count, 3, 8, 8)).astype(np.float32)


def width(model: onnx.ModelProto) -> int:
    return len(numpy_helper.to_array(model.graph.initializer[0]))


def test_magnitude_keeps_the_channels_with_the_largest_weights(tmp_path: Path) -> None:
    rows, outgoing = weights()
    rows[[2, 5, 7]] *= 100
    path = conv_pair(tmp_path / "pair.onnx", rows, outgoing)
    found = magnitude_pruned(path, images(1), "25% of each")
    kept = {t.name: numpy_helper.to_array(t) for t in found.graph.initializer}
    assert any(np.array_equal(a, rows[[2, 5, 7]].astype(np.float32)) for a in kept.values())


def test_interpolation_is_exact_where_channels_are_multiples_of_others(tmp_path: Path) -> None:
    rows, outgoing = weights()
    scale = np.random.default_rng(2).uniform(0.5, 2, CHANNELS)
    rows = np.tile(rows[:4], (3, 1, 1, 1)) * scale[:, None, None, None]
    path = conv_pair(tmp_path / "pair.onnx", rows, outgoing)
    onnx.save(interpolated(path, images(200), "34% of each"), tmp_path / "small.onnx")
    unseen = images(20, seed=5)
    before, after = (outputs_in_parts(p, unseen) for p in (path, tmp_path / "small.onnx"))
    assert width(onnx.load(tmp_path / "small.onnx")) == 4
    assert np.abs(after - before).max() < 1e-3 * np.abs(before).max()


def test_interpolation_is_closer_than_magnitude_on_unseen_images(tmp_path: Path) -> None:
    path = conv_pair(tmp_path / "pair.onnx", *weights())
    unseen, errors = images(50, seed=5), []
    for prune in (interpolated, magnitude_pruned):
        onnx.save(prune(path, images(200), "50% of each"), tmp_path / "small.onnx")
        change = outputs_in_parts(tmp_path / "small.onnx", unseen) - outputs_in_parts(path, unseen)
        errors.append(np.linalg.norm(change))
    assert errors[0] < 0.8 * errors[1]


def test_the_same_share_stays_below_a_limit_of_multiply_adds(tmp_path: Path) -> None:
    path = conv_pair(tmp_path / "pair.onnx", *weights())
    small = magnitude_pruned(path, images(1), "75% MACs")
    onnx.save(small, tmp_path / "small.onnx")
    assert sizes(tmp_path / "small.onnx")["macs"] == 0.75 * sizes(path)["macs"]
    with pytest.raises(NotPossibleError, match="one channel"):
        largest_share("5% MACs", lambda share: 10, 100)


def test_sizes_and_methods_become_options_of_the_command() -> None:
    found = [size_words(size) for size in ("50% MACs", "75% of each", "ε 0")]
    assert found == [["--max-macs", "50%"], ["--keep", "75%"], ["--eps", "0"]]
    aligned = method_words("minimal, 500 images, align 8")
    assert aligned == ["--quotient", "minimal", "--align", "8"]
    assert method_words("no loss, inputs in 0:1") == ["--input-range", "0:1"]
    wanted = ["--input-range", "0:1", "--align", "8"]
    assert method_words("no loss, inputs in 0:1, align 8") == wanted
    assert [images_of(m) for m in ("refit, 1,000 images", "onnxsim")] == [1000, 0]


def test_images_become_inputs_as_the_option_says(tmp_path: Path) -> None:
    pool = np.arange(POOL * 12, dtype=np.uint32).astype(np.uint8).reshape(POOL, 3, 2, 2)
    net = Subject("net", tmp_path, lambda: (pool, pool, np.zeros(0)), mean=(0.1, 0.2, 0.3),
                  std=(0.5, 0.5, 0.25), channels_last=True)  # fmt: skip
    text = "scale=1/255,mean=0.1:0.2:0.3,std=0.5:0.5:0.25,layout=nchw"
    assert net.words == ["--preprocess", text]
    x = net.feed(pool[:5])
    assert x.shape == (5, 2, 2, 3)
    assert np.allclose(x[3, 1, 0, 2], (pool[3, 2, 1, 0] / 255 - 0.3) / 0.25, rtol=0, atol=1e-6)
    draws = [net.drawn(200, draw) for draw in DRAWS]
    assert len({draw.tobytes() for draw in draws}) == len(DRAWS)


def test_every_method_has_its_function_and_every_cell_its_file(tmp_path: Path) -> None:
    assert set(PRUNE) == set(PEERS)
    cells = list(dict.fromkeys(all_cells(quick=False)))
    assert len({model_path(tmp_path, cell) for cell in cells}) == len(cells)
    assert {cell.draw for cell in all_cells(quick=True)} == {0}


def cheap_results() -> dict[str, Result]:
    """A result for every cell of a full run."""
    cheap: Result = {
        "error": 0.5, "score": 0.5, "base": 0.5, "cpu": 1.0, "max_change": 0.0,
        **dict.fromkeys(("parameters", "macs", "bytes"), 10),
        **{f"all_{name}": 100 for name in ("parameters", "macs", "bytes")},
    }  # fmt: skip
    speed = {"speedup": {"value": 1.5, "low": 1.4, "high": 1.6}, "p50": 1e-3,
             "instructions": None, "error": None}  # fmt: skip
    model = {"macs": 10, "runs": {"1": speed, "16": speed}}
    names = ("original", "refit, 500 images, align 8, 50% MACs")
    timed: Result = {"machine": "here", "note": "", "models": dict.fromkeys(names, model)}
    return {
        **{cell.key: cheap for cell in all_cells(quick=False)},
        **{cell.key: timed for cell in latency_cells()},
    }  # fmt: skip


def test_every_promise_has_its_cells_in_a_full_run(tmp_path: Path) -> None:
    found = Found(tmp_path / "results.json")
    assert {row[4] for row in bar_rows(found)} == {"not run yet"}
    write_page(found, tmp_path / "empty.md")
    found.results = cheap_results()
    assert "not run yet" not in {row[4] for row in bar_rows(found)}
    write_page(found, tmp_path / "results.md")
    page = (tmp_path / "results.md").read_text()
    assert "50.00 ± 0.0 (10)" in page
    assert "× 1.50 (1.40–1.60), 1 ms" in page


def test_promises_are_judged_by_loss_time_and_peers() -> None:
    result = {"base": 0.9, "score": 0.88, "cpu": 3.0}
    assert points_lost(2.01, 5.0, [result]) == ("2.00 points, 3.0 s", True)
    assert not points_lost(1.99, 5.0, [result])[1]
    assert not points_lost(2.01, 2.9, [result])[1]
    worse = {**result, "score": 0.85}
    assert little_more(3.01, [worse, result])[1]
    assert not little_more(2.99, [worse, result])[1]
    failed = {"failed": "removes no channel", "cpu": 0.0}
    peers = [
        failed if method == "onnxsim" else {"score": 0.87}
        for method in PEERS for _ in draws_of(method)
    ]  # fmt: skip
    assert beside_peers(0.0, [result] * len(DRAWS) + peers)[1]
    assert not beside_peers(0.0, [{**result, "score": 0.869}] * len(DRAWS) + peers)[1]
    assert beside_peers(2.0, [{**result, "score": 0.869}] * len(DRAWS) + peers)[1]
    whole = {"parameters": 15, "macs": 50, "max_change": 0, "all_parameters": 100, "all_macs": 100}
    assert without_loss([whole])[1]
    assert not without_loss([{**whole, "max_change": 2e-5}])[1]
    assert not without_loss([{**whole, "macs": 51}])[1]


def test_runs_are_kept_by_batch_size() -> None:
    run = {"batch": 16, "speedup": None, "p50": 1.0, "instructions": None, "error": None, "min": 0}
    kept = {"speedup": None, "p50": 1.0, "instructions": None, "error": None}
    assert runs_of({"latencies": [run]}) == {"16": kept}
    assert LatencyCell("net", "cpu, 1 thread").key == "net | latency | cpu, 1 thread"
    assert Cell("net", "refit", "50% MACs", 2).key == "net | refit | 50% MACs | 2"
