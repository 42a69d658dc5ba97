"""The page of `optimize --html`: its numbers are the report's, and nothing on it does harm."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxfde.demo import demo_data, demo_model
from onnxfde.pages.layer_cards import chosen_words, own_words
from onnxfde.pages.markup import template_text
from onnxfde.pages.report_page import ReportPage, certificate_section
from onnxfde.pages.spending_section import spending_section
from onnxfde.pages.words import asked, percent
from tests.command.running import run
from tests.models import mlp, twins
from tests.pages.browser import Elements, needs_browser, opened, value_at, width_in

HOSTILE = "<script>document.title='harmed'</script>\"'&\u202eevil\u2067\N{HEBREW LETTER ALEF}"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page and the JSON of the demo network."""
    folder = tmp_path_factory.mktemp("page")
    words: list[str | Path] = [
        "optimize",
        demo_model("digits"),
        folder / "out.onnx",
        "--data",
        demo_data("digits"),
    ]
    words += [
        "--max-params",
        "20%",
        "--quotient",
        "refit",
        "--html",
        folder / "page.html",
        "--json",
        folder / "r.json",
    ]
    assert run(*words).exit_code == 0
    return folder


@pytest.fixture(scope="module")
def page(made: Path) -> Elements:
    return Elements((made / "page.html").read_text(encoding="utf-8"))


def test_every_number_is_that_of_the_json_report(made: Path, page: Elements) -> None:
    report = json.loads((made / "r.json").read_text())
    for path, shown in page.numbers.items():
        assert shown == value_at(report, path), path
    wanted = {"parameters.before", "parameters.after", "bytes.after", "verification.relative_l2"}
    wanted |= {"layers.0.neurons_after", "layers.1.measured_error", "verification.metric_after"}
    wanted |= {"goal.limit", "goal.reached", "goal.tries", "goal.spent.0.before"}
    wanted |= {"goal.spent.0.after", "goal.spent.1.error_share", "goal.spent.1.saving_share"}
    wanted |= {"verification.row_changes.median", "verification.row_changes.edges.24"}
    assert wanted <= page.numbers.keys()
    assert json.loads(page.text_of("report-json")) == report


def test_the_report_holds_what_the_page_draws(made: Path) -> None:
    report = json.loads((made / "r.json").read_text())
    bars = report["verification"]["row_changes"]
    assert sum(bars["counts"]) == report["verification"]["samples"]
    assert len(bars["edges"]) == len(bars["counts"]) + 1
    half = sum(bars["counts"]) / 2
    below = [np.searchsorted(bars["edges"], bars["median"], side) for side in ("left", "right")]
    assert sum(bars["counts"][: below[0] - 1]) <= half <= sum(bars["counts"][: below[1]])
    for layer in report["layers"]:
        counts = [point["neurons"] for point in layer["frontier"]]
        errors = [point["error"] for point in layer["frontier"]]
        assert counts == sorted(set(counts))
        assert errors[0] > errors[-1]


def test_it_can_be_read_without_seeing_it(page: Elements) -> None:
    pictures = page.named("svg")
    assert len(pictures) >= 6
    assert all(found["role"] == "img" and found["aria-label"] for found in pictures)
    assert len(page.named("table")) == len(page.named("caption"))
    assert all(found.get("scope") for found in page.named("th"))
    levels = [int(tag[1]) for tag, _ in page.found if tag in ("h1", "h2", "h3")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
    assert page.named("html")[0]["lang"] == "en"


def test_the_histogram_is_told_by_its_median_and_its_largest_change(
    made: Path, page: Elements
) -> None:
    bars = json.loads((made / "r.json").read_text())["verification"]["row_changes"]
    told = f"median is {percent(bars['median'])}, the largest change {percent(bars['edges'][-1])}"
    assert [found for found in page.named("svg") if told in (found["aria-label"] or "")]


def test_outputs_that_changed_a_lot_are_warned_of(made: Path) -> None:
    report = json.loads((made / "r.json").read_text())
    page = ReportPage("m", "command")
    assert "changed a lot" not in page.of_fields(report)
    report["goal"] = None
    report["verification"] |= {"relative_l2": 0.3}
    assert "how much they vary. See above what that does to the accuracy." in page.of_fields(report)
    report["verification"] |= {"metric": None, "metric_before": None, "metric_after": None}
    assert "the data has no labels" in page.of_fields(report)


@pytest.mark.parametrize("useless", [False, True])
def test_a_proof_that_says_little_is_called_that(useless: bool) -> None:
    output = {"name": "y", "bound": 0.5, "measured_max": 0.1, "spread": 1.0, "useful": not useless}
    found = {"unavailable": None, "outputs": [output], "box": "range", "rounding": 3e-5}
    text = certificate_section({"certificate": found, "int8": None})
    assert ("of little use" in text) == useless
    assert ("Computers round" in text) != useless


@pytest.mark.parametrize(
    ("own", "kind", "words"),
    [
        (0.05, "dense", "5 % (measured). It lies below the line"),
        (0.1, "dense", "10 % (measured)."),
        (0.105, "dense", "10.50 % (measured). It lies above the line: the line is estimated from"),
        (0.2, "channels", "20 % (measured). It lies above the line: the line is estimated in"),
        (None, "dense", "10 % (estimated too)."),
    ],
)
def test_the_chosen_point_is_the_layers_own_change(
    own: float | None, kind: str, words: str
) -> None:
    layer = {"neurons_after": 3, "own_error": own, "error": 0.1, "kind": kind}
    said = chosen_words(layer, "neurons", 0.1).replace("\N{NO-BREAK SPACE}", " ")
    assert said.startswith(f"What was chosen: 3 neurons, {words}")


def test_nothing_is_written_on_the_line_of_a_plot(made: Path) -> None:
    """Only the numbers and titles of the axes; what was chosen is said below."""
    text = (made / "page.html").read_text(encoding="utf-8")
    (plot,) = re.findall(r"<svg[^>]*node_linear: what fewer.*?</svg>", text, re.DOTALL)
    (chosen,) = re.findall(r'<circle class="chosen".*', plot)
    assert not re.findall("<text", chosen)
    assert "What was chosen: " in text


def test_a_picture_says_whether_the_neurons_that_are_left_are_in_it(made: Path) -> None:
    """The second layer has other inputs than it had."""
    first, second = re.findall(
        r"Each group resembles one.*?</figcaption>", (made / "page.html").read_text()
    )
    assert 'class="key kept"' in first
    assert "which is not shown: it has other inputs" in second


def test_an_output_that_is_called_output_is_not_called_that_twice() -> None:
    page = ReportPage("m", "command", outputs=("output", "y"))
    shown = plain_text("".join(page.network({"layers": []})))
    assert shown == "output y output"


def test_what_a_layer_inherits_is_told_apart() -> None:
    layers = [{"own_error": 0.1, "measured_error": 0.2}, {"own_error": 0.2, "measured_error": 0.2}]
    first, second = ("".join(own_words({"layers": layers}, number)) for number in (0, 1))
    assert "by itself; the rest comes from layers before it" in first
    assert not second


def spent_on(kind: str, **fields: Any) -> dict[str, Any]:
    """A report of a run with a target, as far as the section about it goes."""
    layer = {"name": "<one>", "before": 8, "after": 5, "error_share": 0.75, "saving_share": 0.25}
    goal = {"kind": kind, "limit": 0.05, "reached": 0.04, "as_share": False, "tries": 2}
    goal |= {"chosen_by": 0.03, "spent": [layer], **fields}
    layers = [{"name": "<one>", "neurons_before": 8}]
    known = {"unchanged": None, "verification": {"metric": "accuracy"}}
    return {"goal": goal, "layers": layers, **known}


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (spent_on("error"), "at most 5 % change of the outputs. Reached: 4 %"),
        (spent_on("error"), "2 networks were made and measured, and the best that keeps the"),
        (spent_on("error"), "share of the parameters that layers save"),
        (spent_on("error"), "<one> 8 5 75 % 25 %"),
        (spent_on("error", tries=1), "1 network was made and measured."),
        (spent_on("error", spent=[], tries=0), "No layer can be made smaller beyond"),
        (spent_on("drop", limit=1.5), "at most 1.5 points of accuracy lost"),
        (spent_on("macs", limit=900, reached=None, chosen_by=880), "900 multiply-adds. Reached"),
        (spent_on("params", spent=[], tries=0), "It was enough to remove what the network can do"),
        (spent_on("latency", limit=2.5), "at most 2.5 ms for one run"),
        (spent_on("latency", as_share=True), "at most 5 % of the original's time"),
        (spent_on("latency"), "share of the multiply-adds that layers save"),
    ],
)  # fmt: skip
def test_a_target_says_how_it_was_met(report: dict[str, Any], words: str) -> None:
    assert words in plain_text(spending_section(report))


def test_a_target_that_no_network_meets_takes_none_of_them() -> None:
    report = spent_on("drop")
    report["goal"]["spent"][0]["after"] = 8
    words = plain_text(spending_section(report))
    assert "2 networks were made and measured, but none of them keeps the limit" in words
    assert "<one>" not in words


def test_what_is_proven_is_told_apart_from_rounding() -> None:
    output = {"name": "y", "bound": 6e-9, "measured_max": 3e-7, "spread": 1.0, "useful": True}
    proof = {"box": "range −1 to 1", "outputs": [output], "rounding": 2e-4, "unavailable": None}
    words = plain_text(certificate_section({"certificate": proof, "int8": None}))
    assert "if they are computed exactly. Computers round, which may add about 0.0002 ." in words
    words = plain_text(certificate_section({"certificate": None, "int8": {"mode": "static"}}))
    assert "there is no proof for models in 8 bits" in words


def plain_text(page: str) -> str:
    """What a page says, without its elements."""
    return " ".join("".join(Elements(page.replace("</", " </")).texts.values()).split())


def test_a_layer_that_lost_neurons_before_says_so() -> None:
    report = spent_on("error")
    assert "whose absence changes nothing" not in spending_section(report)
    report["layers"][0]["neurons_before"] = 10
    assert "whose absence changes nothing" in spending_section(report)


def test_a_run_without_a_target_says_nothing_about_one(hostile: Path) -> None:
    assert 'id="spending"' not in hostile.read_text(encoding="utf-8")


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize(
    ("ink", "ratio"),
    [("ink", 7), ("soft", 4.5), ("after", 4.5), ("accent", 4.5), ("bound", 3)],
)
def test_colours_can_be_told_from_what_is_behind_them(mode: int, ink: str, ratio: float) -> None:
    """The ratios are those of WCAG 2.2 for text (4.5, better 7) and for lines (3)."""
    text = template_text("style.css")
    blocks = [dict(re.findall(r"--(\w+): (#\w{6})", part)) for part in text.split(":root {")[1:]]
    colours = blocks[mode]
    for ground in ("page", "card"):
        light, dark = sorted((brightness(colours[ink]), brightness(colours[ground])), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= ratio, (ink, ground)


def brightness(colour: str) -> float:
    """The relative luminance of a colour, as WCAG defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def test_it_loads_nothing(page: Elements) -> None:
    for found in page.named("script", "link", "img", "image", "iframe", "a"):
        assert (found.get("href") or found.get("src") or "data:").startswith("data:")


@needs_browser
def test_a_browser_would_tell(tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text("<img src='http://a.invalid/x.png'><script>console.error(1); no()</script>")
    seen = opened(page, tmp_path)
    assert seen.requests == ["http://a.invalid/x.png"]
    assert len(seen.console) >= 2


@needs_browser
def test_a_browser_has_nothing_to_complain_about(made: Path, tmp_path: Path) -> None:
    seen = opened(made / "page.html", tmp_path)
    assert (seen.console, seen.requests) == ([], [])
    report = json.loads((made / "r.json").read_text())
    shown = Elements(seen.dom).numbers
    assert len(shown) > 10
    assert all(number == value_at(report, path) for path, number in shown.items())


@needs_browser
def test_it_fits_a_telephone(made: Path, tmp_path: Path) -> None:
    assert width_in(made / "page.html", 390, tmp_path) <= 390


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """The page of a model in which every name wants to be more than a name."""
    model = mlp(*twins())
    names = {name: f"{HOSTILE}{name}" for node in model.graph.node for name in node.output}
    names |= {value.name: f"{HOSTILE}{value.name}" for value in model.graph.input}
    for node in model.graph.node:
        node.name = f"{HOSTILE}{node.output[0]}"
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for value in (*model.graph.input, *model.graph.output):
        value.name = names[value.name]
    onnx.save(model, tmp_path / "<img src=x>.onnx")
    page = tmp_path / "page.html"
    done = run("optimize", tmp_path / "<img src=x>.onnx", tmp_path / "o.onnx", "--html", page)
    assert done.exit_code == 0, done.output
    return page


def test_names_stay_names(hostile: Path) -> None:
    page = Elements(hostile.read_text(encoding="utf-8"))
    assert not page.named("script", "img")
    text = hostile.read_text(encoding="utf-8")
    assert "harmed" in text
    assert not set("\u202e\u2067") & set(text)


@needs_browser
def test_names_do_no_harm_in_a_browser(hostile: Path, tmp_path: Path) -> None:
    seen = opened(hostile, tmp_path)
    assert (seen.console, seen.requests) == ([], [])
    assert "<title>harmed" not in seen.dom
    assert width_in(hostile, 390, tmp_path) <= 390


def test_a_model_that_stays_as_it_is_says_why(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=s).astype("f") for s in ((5, 6), (5,), (2, 5), (2,))]
    onnx.save(mlp(*weights), tmp_path / "a.onnx")
    words: list[str | Path] = [
        "optimize",
        tmp_path / "a.onnx",
        tmp_path / "b.onnx",
        "--eps",
        "0",
        "--html",
    ]
    assert run(*words, tmp_path / "p.html").exit_code == 0
    assert "Nothing changed:" in (tmp_path / "p.html").read_text()


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_file_that_is_no_page_is_not_replaced(
    model: Path, tmp_path: Path, dry: tuple[str, ...]
) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    done = run("optimize", model, tmp_path / "o.onnx", "--html", tmp_path / "notes.txt", *dry)
    assert done.exit_code == 2
    assert "is not HTML" in done.stderr
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not (tmp_path / "o.onnx").exists()


@pytest.mark.parametrize("same", ["in.onnx", "o.onnx", "r.json"])
def test_a_page_is_no_other_file_of_the_run(model: Path, tmp_path: Path, same: str) -> None:
    before = model.read_bytes()
    words: list[str | Path] = [
        "optimize",
        model,
        tmp_path / "o.onnx",
        "--json",
        tmp_path / "r.json",
    ]
    done = run(*words, "--html", tmp_path / same)
    assert done.exit_code == 2
    assert model.read_bytes() == before
    assert not (tmp_path / "o.onnx").exists()


def test_a_page_is_not_written_to_stdout(model: Path, tmp_path: Path) -> None:
    done = run("optimize", model, tmp_path / "o.onnx", "--html", "-")
    assert done.exit_code == 2
    assert "--html - : a page is written to a file" in done.stderr


def test_a_dry_run_writes_the_page_alone(model: Path, tmp_path: Path) -> None:
    done = run("optimize", model, tmp_path / "o.onnx", "--dry-run", "--html", tmp_path / "p.html")
    assert done.exit_code == 0
    assert (tmp_path / "p.html").read_text().startswith("<!doctype html>")
    assert not (tmp_path / "o.onnx").exists()


def test_the_command_on_the_page_makes_the_same_model(made: Path, tmp_path: Path) -> None:
    page = (made / "page.html").read_text(encoding="utf-8")
    line = unescape(page.split("<pre><code>")[1].split("</code>")[0])
    words = [str(tmp_path / "again.onnx") if w == str(made / "out.onnx") else w
             for w in shlex.split(line)[1:]]  # fmt: skip
    assert run(*words).exit_code == 0
    assert (tmp_path / "again.onnx").read_bytes() == (made / "out.onnx").read_bytes()


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"max_latency": "5ms"}, "at most 5 ms for one run"),
        ({"max_latency": "60%"}, "at most 60\N{NO-BREAK SPACE}% of the time"),
        ({"max_certified_error": [0.5, False]}, "no output changes by more than 0.5"),
    ],
)
def test_what_was_asked_for_is_said_as_it_was_meant(setting: dict[str, Any], words: str) -> None:
    assert words in asked({"settings": setting})
