"""The pages of a sweep say what each size costs, and nothing that sounds better than it is."""

from __future__ import annotations

import re
from dataclasses import asdict
from html import escape, unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxfde.pages.sweep_index import index_page
from onnxfde.pages.sweep_pages import ModelSweep, lead, model_page
from onnxfde.pages.sweep_rows import SweepRow
from onnxfde.proof.certificate import Certificate, OutputBound
from tests.pages.browser import Elements, needs_browser, opened

ORIGINAL = SweepRow("net", "original", 1000, bytes=4000, metric="accuracy", metric_value=0.9)


def size(share: int, **fields: Any) -> SweepRow:
    """A row with so much percent of the parameters of the original."""
    file = f"net/{share}-percent.onnx"
    return SweepRow("net", f"{share}%", 10 * share, bytes=40 * share, file=file, **fields)


def sweep_of(*rows: SweepRow, original: SweepRow = ORIGINAL) -> ModelSweep:
    return ModelSweep("net", "net.onnx", "params", (original, *rows))


def shown_as(page: Elements, exact: str) -> str:
    """The text of the last cell with a value."""
    cells = [i for i, (_, found) in enumerate(page.found) if found.get("data-value") == exact]
    return page.texts[cells[-1]].strip()


def proven(bounds: tuple[float, ...], rounding: float | None = None) -> SweepRow:
    """The row of a run whose outputs vary by 1, with these bounds on their change."""
    outputs = tuple(OutputBound("y", bound) for bound in bounds)
    run = np.array([[-1.0], [1.0]])
    proof = asdict(
        Certificate("range", outputs, rounding).beside([run] * len(bounds), [run] * len(bounds))
    )
    sizes = {"before": 2, "after": 1}
    report: dict[str, Any] = {
        "verification": None,
        "certificate": proof,
        "unchanged": None,
        "grp_percent": 50,
    }
    report |= {"parameters": sizes, "bytes": sizes, "multiply_adds": None, "output_sha256": "f"}
    return SweepRow.of_report("net", "50%", "net/50-percent.onnx", report)


@pytest.mark.parametrize(
    ("row", "change", "useful", "shown"),
    [
        (proven((0.25, 0.5)), 0.5, True, "0.5"),
        (proven((0.25, 1.5)), 1.5, False, "too loose"),
        (proven((0.25,), rounding=2e5), 200000.25, False, "too loose"),
        (proven(()), None, None, "–"),
    ],
)
def test_a_bound_that_says_nothing_is_not_shown_as_a_result(
    row: SweepRow, change: float | None, useful: bool | None, shown: str
) -> None:
    assert (row.certified_change, row.certified_useful) == (change, useful)
    page = Elements(model_page(sweep_of(row), "command"))
    assert shown_as(page, "" if change is None else f"{change:.17g}") == shown


def index_cells(done: ModelSweep) -> list[str]:
    """The cells of the only model in the index that have a value."""
    page = Elements(index_page([done], "command"))
    cells = [i for i, (_, found) in enumerate(page.found) if "data-value" in found]
    return [page.texts[i].replace("\N{NO-BREAK SPACE}", " ").strip() for i in cells]


UNCHANGED = size(100, relative_l2=0.0, metric_value=0.9, speedup=1.0)
POOR = size(75, relative_l2=0.33, metric_value=0.861, speedup=1.2)
POOREST = size(10, relative_l2=0.98, metric_value=0.29, speedup=1.98)
GOOD = size(50, relative_l2=0.06, metric_value=0.8901, speedup=1.5)
NEAR = size(75, relative_l2=0.04, metric_value=0.9, speedup=1.25)
UNSCORED = SweepRow("net", "original", 1000)


@pytest.mark.parametrize(
    ("done", "shown"),
    [
        (sweep_of(UNCHANGED, POOR, POOREST), ["none", "–", "none"]),
        (sweep_of(UNCHANGED, NEAR, GOOD, POOREST), ["50 %", "1.50 ×", "75 %"]),
        (sweep_of(NEAR, POOREST, original=UNSCORED), ["–", "1.25 ×", "75 %"]),
        (sweep_of(POOR, original=UNSCORED), ["–", "–", "none"]),
    ],
)
def test_the_speed_shown_is_that_of_the_size_that_keeps_the_limit(
    done: ModelSweep, shown: list[str]
) -> None:
    cells = index_cells(done)
    assert [found for found in cells if found.endswith(("%", "×", "none", "–"))] == shown


def test_no_smaller_size_is_said_to_keep_a_limit_that_none_keeps() -> None:
    told = " ".join(lead(sweep_of(UNCHANGED, POOR, POOREST))).replace("\N{NO-BREAK SPACE}", " ")
    assert "No smaller size loses at most one point of accuracy; the best (75%) loses 3.9." in told
    assert "the best (75%) changes them by 33 %." in told
    assert "100 %" not in told
    assert "None of them is smaller" in " ".join(lead(sweep_of(UNCHANGED)))


def test_the_smallest_size_that_keeps_a_limit_is_named() -> None:
    told = " ".join(lead(sweep_of(NEAR, GOOD, POOREST))).replace("\N{NO-BREAK SPACE}", " ")
    assert "has 50 % of the parameters: accuracy goes from 90 % to 89.01 %." in told
    assert "has 75 % of the parameters: they change by 4 %." in told


def test_all_curves_of_the_index_have_one_scale() -> None:
    """The same change is as high in each of them, and as far to the right."""
    two = [sweep_of(UNCHANGED, POOR, POOREST), sweep_of(UNCHANGED, NEAR)]
    paths = Elements(index_page(two, "command")).named("path")
    first, second = (str(found["d"])[1:].split("L") for found in paths if found["class"] == "curve")
    assert first[-1] == second[-1]
    (x, high), (same, low) = (map(float, curve[-2].split(",")) for curve in (first, second))
    base = float(first[-1].split(",")[1])
    assert x == same
    assert (base - low) / (base - high) == pytest.approx(0.04 / 0.33, rel=0.03)
    text = index_page(two, "command").replace("\N{NO-BREAK SPACE}", " ")
    assert "All have the same scale, up to 98 %." in text


def test_no_scale_is_named_where_there_is_no_curve() -> None:
    assert "the same scale" not in index_page([sweep_of(original=UNSCORED)], "command")


def test_a_model_that_is_far_off_does_not_flatten_the_others() -> None:
    text = index_page([sweep_of(UNCHANGED, size(10, relative_l2=50.0))], "command")
    assert "up to 100\N{NO-BREAK SPACE}%." in text


HEADINGS = """<!doctype html><title>?</title><iframe style="width:390px;height:900px;border:0"
srcdoc="{page}"></iframe><script>onload = () => {{
const page = document.querySelector("iframe").contentDocument;
document.title = [...page.querySelectorAll(".sortable thead th")].map((head) => {{
  const inside = head.querySelector("button") ?? head;
  const lines = Math.round(inside.getBoundingClientRect().height / 20);
  return `${{head.textContent}}=${{Math.round(head.getBoundingClientRect().right)}}=${{lines}}`;
}}).join("|"); }};</script>"""


def headings_in_a_telephone(page: str, folder: Path) -> dict[str, tuple[int, int]]:
    """Where each column of a table ends, and how many lines its heading has."""
    (folder / "outer.html").write_text(HEADINGS.format(page=escape(page)), encoding="utf-8")
    found = re.search(r"<title>(.*)</title>", opened(folder / "outer.html", folder).dom)
    assert found is not None
    parts = [part.split("=") for part in unescape(found[1]).split("|")]
    return {name: (int(end), int(lines)) for name, end, lines in parts}


@needs_browser
def test_a_telephone_shows_what_matters_without_scrolling(tmp_path: Path) -> None:
    done = sweep_of(UNCHANGED, NEAR, GOOD, POOREST)
    model = headings_in_a_telephone(model_page(done, "command"), tmp_path)
    assert [name for name, (end, _) in model.items() if end <= 390] == [
        "asked for",
        "change",
        "accuracy",
        "times as fast",
        "model",
    ]
    index = headings_in_a_telephone(index_page([done], "command"), tmp_path)
    shown = [name for name, (end, _) in index.items() if end <= 390]
    assert [name.split(",")[0] for name in shown[:4]] == [
        "model",
        "size left",
        "times as fast",
        "size left",
    ]


@needs_browser
def test_the_arrow_of_a_heading_stays_beside_its_last_word(tmp_path: Path) -> None:
    found = headings_in_a_telephone(model_page(sweep_of(UNCHANGED, POOR), "command"), tmp_path)
    assert {found[name][1] for name in ("accuracy", "parameters", "bytes")} == {1}
