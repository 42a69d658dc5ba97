"""The paper's figures, and the results beside them: lost lines, means, bars."""

from __future__ import annotations

from itertools import pairwise
from math import isnan, sqrt
from pathlib import Path

import pytest

from benchmarks.paper import checks, report
from benchmarks.paper.published import ROWS, SYSTEMS, Figure, Row, half, rows_of
from benchmarks.paper.store import FIELDS, Result, Store, network_hash
from benchmarks.paper.tables import confidence, summarised


def test_confidence_is_students() -> None:
    # mean 2, standard deviation 1, t(0.975, 2 degrees of freedom) = 4.302653
    assert confidence([1.0, 2.0, 3.0]) == pytest.approx(4.302653 / sqrt(3), rel=1e-6, abs=0)
    assert isnan(confidence([1.0]))


def test_every_published_table_is_complete() -> None:
    assert SYSTEMS == ("RN", "EN", "POL", "GLY", "Abalone", "HEPC", "Metro", "Protein")
    assert len(ROWS) == 3 * (5 + 6 + 6 + 5) + 4 * 7
    for system in SYSTEMS:
        for variant in (1, 2, 3) if system in SYSTEMS[:4] else (1,):
            rows = rows_of(system, variant)
            assert [row.config for row in rows] == [f"C{i + 1}" for i in range(len(rows))]
            assert rows[0].eps == (0.0,) * {1: 1, 2: 2, 3: 4}[variant]
            assert {len(row.eps) for row in rows} == {len(rows[0].eps)}
            assert rows[0].fde.grp == rows[0].magnitude.grp == rows[0].wanda.grp == 100
            assert all(a.fde.grp > b.fde.grp for a, b in pairwise(rows))
            figures = [f for row in rows for f in (row.fde, row.magnitude, row.wanda)]
            assert all(0 < f.grp <= 100 and f.mse > 0 and f.ci > 0 for f in figures)


def test_published_figures_are_the_papers() -> None:
    assert rows_of("GLY")[4] == Row(
        "GLY", 1, "C5", (1.5,), 99, 99,
        Figure(17.78, 4.95e-4, 2.72e-4), Figure(54.01, 8.62e-2, 2.11e-2),
        Figure(54.28, 2.54e-2, 1.12e-2),
    )  # fmt: skip
    assert rows_of("POL", 3)[5].eps == (1.5, 2.0, 2.5, 2.5)
    assert rows_of("GLY", 2)[4].eps == (2.0, 1.5)
    assert rows_of("EN", 2)[5].fde == Figure(39.79, 2.33e-7, 1.95e-7)
    assert rows_of("EN")[3].magnitude_percent == 92
    assert rows_of("EN")[3].wanda_percent == 90
    assert rows_of("Abalone")[1].magnitude_percent == 20.83
    assert rows_of("Metro")[6].wanda == Figure(33.74, 1.17e-1, 1.45e-2)
    assert rows_of("HEPC")[6].fde == Figure(7.40, 2.12e-1, 7.70e-2)
    assert half("HEPC").fde.grp == 3.70


def result(seed: int = 0, network: str = "abc", mse: float = 0.5) -> Result:
    return Result("RN", 1, seed, network, "minimal", "C2", "9/9", 12.5, mse)


def test_results_are_found_again(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    for seed in range(3):
        Store(path).add(result(seed))
    store = Store(path)
    assert list(store.results.values()) == [result(seed) for seed in range(3)]
    assert ("RN", 1, 2, "abc", "minimal", "C2") in store
    assert ("RN", 1, 2, "other", "minimal", "C2") not in store
    assert path.read_text().splitlines()[0] == ",".join(FIELDS)


@pytest.mark.parametrize("lost", [1, 4, 20])
def test_a_torn_last_line_is_measured_again(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "results.csv"
    for seed in range(2):
        Store(path).add(result(seed))
    whole = path.read_text()
    path.write_text(whole[:-lost])
    store = Store(path)
    assert list(store.results.values()) == [result(0)]
    store.add(result(1))
    assert path.read_text() == whole


def test_a_broken_line_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    Store(path).add(result())
    path.write_text(path.read_text() + "RN,1,1,abc,minimal,C2,9,x,0.5\nRN,1\n")
    assert list(Store(path).results.values()) == [result()]


def test_results_of_a_network_that_was_trained_again_do_not_count(tmp_path: Path) -> None:
    store = Store(tmp_path / "results.csv")
    for found in (result(0), result(1), result(0, "new", 0.25)):
        store.add(found)
    assert set(store.current()) == {result(1), result(0, "new", 0.25)}
    (cell,) = summarised(store.current()).values()
    assert cell.mses == (0.25, 0.5)


def test_a_network_is_known_by_its_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "a.onnx", tmp_path / "b.onnx"
    first.write_bytes(b"1")
    second.write_bytes(b"2")
    assert network_hash(first) != network_hash(second)
    second.write_bytes(b"1")
    assert network_hash(first) == network_hash(second)


def made_up(system: str, variant: int, method: str, config: str, grp: float, mse: float) -> Result:
    return Result(system, variant, 0, "abc", method, config, "9", grp, mse)


@pytest.mark.parametrize(
    ("grp", "mse", "met"),
    [
        (25.0, 1e-7, True),  # a smaller error than the paper's 1.49e-6
        (25.0, 1e-3, False),
        (26.8, 1e-7, False),  # more is left than the paper's 26.70 %
        (25.0, 8e-6, True),  # 80 times the base; the paper loses 83.7 times its own
        (25.0, 9e-6, False),
    ],
)
def test_a_deep_row_holds_by_its_error_or_its_loss(grp: float, mse: float, met: bool) -> None:
    results = [
        made_up("EN", 3, "base", "C1", 100.0, 1e-7),
        made_up("EN", 3, "minimal", "C6", grp, mse),
    ]
    (check,) = checks.deep_checks(summarised(results), "minimal")
    assert check.met is met


def test_the_page_shows_what_is_known_and_only_that() -> None:
    results = [
        made_up("GLY", 1, "base", "C1", 100.0, 3e-4),
        made_up("GLY", 1, "quadratic", "C1", 100.0, 2.9e-4),
        made_up("GLY", 1, "minimal", "C5", 17.0, 3.01e-4),
        made_up("GLY", 1, "magnitude", "C5", 54.2, 0.1),
    ]
    page = report.page(summarised(results))
    assert "## GLY, variant 1 (1 seeds)" in page
    assert "variant 2" not in page.split("## What it should show")[1].split("## Reading")[0]
    assert "GRP 17.00 %, MSE 3.010e-04, 1.0033 × base | pass" in page
    assert "1.0345 × (worst 1.0345 ×) | **fail**" in page
    assert "largest difference 0.190 (C5) | **fail**" in page
