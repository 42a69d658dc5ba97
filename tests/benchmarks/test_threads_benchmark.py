"""A slice of `benchmarks.threads`: one small layer, idle and busy."""

from __future__ import annotations

import pytest

from benchmarks import threads
from onnxfde.threads import SMALL_PROBLEM


def test_all_work_is_timed_with_one_thread_and_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "LEAST_SECONDS", 0.0)
    rows = threads.rows_of(("4-16-2",), 2)
    assert {row[0] for row in rows} == threads.kernels("4-16-2").keys()
    for row in rows:
        assert len(row) == len(threads.HEADER.split("|"))
        assert all(float(str(cell).removesuffix(" ms")) > 0 for cell in row[3:7])


def test_layers_on_both_sides_of_the_policy_are_measured() -> None:
    sizes = [threads.weights(shape) for shape in threads.SHAPES]
    assert min(sizes) < SMALL_PROBLEM <= max(sizes)
