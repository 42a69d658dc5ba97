"""The benchmark of deployed networks: its scores, and that its runner takes up where it stopped."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.common.found_cells import Found
from benchmarks.real import cells
from benchmarks.real.__main__ import main
from benchmarks.real.counting import multiplications
from benchmarks.real.judging import difference, estimated
from benchmarks.real.running import Bench, run_missing
from benchmarks.real.scores import box_score, character_score, class_score, decoded
from benchmarks.real.subject import Score
from tests.benchmarks import tiny_real

MODULE = "tests.benchmarks.tiny_real"
ONLY = ("* | original", "* | --max-macs 50%", "* | int8 static")


def test_characters_count_without_spaces_and_edits_cost() -> None:
    score = character_score(["ab c", "xyz", ""], ["abd", "xyz", "hello"])
    assert score.top.tolist() == [2, 3, 0]
    assert score.estimate.value == pytest.approx(5 / 11, rel=0, abs=1e-12)


def test_a_repeated_character_needs_a_gap() -> None:
    assert decoded(np.array([1, 1, 0, 1, 2, 2]), ["", "a", "b"]) == "aab"


def test_boxes_match_once_and_only_their_own_class() -> None:
    one, far = [0.0, 0, 10, 10, 3, 0.9], [50.0, 50, 60, 60, 3, 0.8]
    shifted, other_class = [1.0, 0, 11, 10, 3, 0.7], [0.0, 0, 10, 10, 4, 0.6]
    found = np.array([one, shifted, other_class])
    score = box_score([found], [np.array([one, far])])
    assert (score.top.tolist(), score.bottom.tolist()) == ([2.0], [5.0])
    empty = np.zeros((0, 6))
    assert box_score([empty], [np.array([far])]).top.tolist() == [0.0]


def test_a_difference_is_of_the_same_items() -> None:
    rng = np.random.default_rng(0)
    bottom = rng.integers(5, 20, 400).astype(np.float64)
    top = bottom - rng.integers(0, 5, 400)
    before, after = Score(top, bottom), Score(top - (rng.random(400) < 0.1), bottom)
    found = difference(after, before)
    low, high = found["interval"]
    assert low < found["value"] < high < 0
    alone = estimated(after)["interval"]
    assert high - low < 0.3 * (alone[1] - alone[0])


def test_few_unequal_items_stay_within_what_is_possible() -> None:
    bottom = np.array([2.0] * 18 + [60.0, 80.0])
    score = Score(bottom * ([0.9] * 18 + [0.05, 0.6]), bottom)
    low, high = estimated(score)["interval"]
    assert 0 < low < score.estimate.value < high <= 0.9 + 1e-12
    same = difference(score, score)
    assert same == {"value": 0, "interval": (0, 0)}


def test_a_perfect_score_is_not_certain() -> None:
    score = class_score(np.eye(3)[[0, 1, 2, 0]], np.array([0, 1, 2, 0]))
    low, high = estimated(score)["interval"]
    assert low < 0.9
    assert high == 1
    change = difference(score, score)
    assert change["interval"][0] < 0 < change["interval"][1]


def test_multiplications_are_those_of_a_run(tmp_path: Path) -> None:
    material = tiny_real.prepare(tmp_path)
    feed = {"x": np.zeros((1, tiny_real.INPUTS), np.float32)}
    hidden = tiny_real.HIDDEN
    assert multiplications(material.model, feed) == (tiny_real.INPUTS + 2) * hidden


def test_the_runner_takes_up_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, file = Bench(MODULE, tmp_path, timed=False), tmp_path / "results.json"
    run_missing(bench, ["tiny"], Found.opened(file), ONLY)
    first = json.loads(file.read_text())
    assert {key.split(" | ")[1] for key in first} == {word[4:] for word in ONLY}
    smaller = next(r for key, r in first.items() if "50%" in key)
    assert (smaller["code"], smaller["macs"]) == (0, 96)
    assert smaller["megabytes"] > 20

    monkeypatch.setattr(Bench, "run", lambda *_: pytest.fail("a finished cell ran again"))
    run_missing(bench, ["tiny"], Found.opened(file), ONLY)
    assert json.loads(file.read_text()) == first

    monkeypatch.setattr(cells, "source_hash", lambda: "other code")
    monkeypatch.setattr(Bench, "run", lambda *_: {"code": 1, "said": "onnxfde: too few"})
    run_missing(bench, ["tiny"], Found.opened(file), ONLY)
    after = json.loads(file.read_text())
    assert set(first) ^ set(after) == {
        next(key for key in found if "50%" in key) for found in (first, after)
    }
    main(["--subjects", MODULE, "--results", str(file), "--cache", str(tmp_path), "--page"])
    page = file.with_suffix(".md").read_text()
    assert "| `--max-macs 50%` | " in page
    assert "**too few**" in page


def test_a_network_without_inputs_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(MODULE, tmp_path, timed=False)
    found = Found.opened(tmp_path / "results.json")
    run_missing(bench, ["missing", "tiny"], found, ("* | original",))
    assert [key.split(" | ")[0] for key in found.results] == ["tiny"]
    assert "missing: no inputs" in capsys.readouterr().err
