"""A sweep computes each point once, keeps what it has, and harms no file."""

from __future__ import annotations

import csv
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import escape
from multiprocessing import active_children
from pathlib import Path
from urllib.parse import unquote, unquote_to_bytes

import numpy as np
import onnx
import pytest

import onnxfde
from onnxfde.errors import OutputError, UsageError
from onnxfde.limits import SIZE_GOALS
from onnxfde.pages.sweep_rows import TIMES
from onnxfde.pages.words import percent
from onnxfde.progress import Progress
from onnxfde.sweeping.ladder import SizeKind, rungs_of, swept_models
from onnxfde.sweeping.latencies import timed_rows
from onnxfde.sweeping.local_pool import LocalPool, PointProcess
from onnxfde.sweeping.png_plot import write_png
from onnxfde.sweeping.points import PointOutcome, PointTask, run_point
from onnxfde.sweeping.results_folder import opened_results
from onnxfde.sweeping.sweep import Sweep
from tests.command.running import run
from tests.models import mlp
from tests.pages.browser import Elements, needs_browser, opened, width_in
from tests.sweeping.ladders import Here, ladder_for, saved_models, swept_into


def rows_in(out: Path) -> list[dict[str, str]]:
    with (out / "sweep.csv").open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def without_times(out: Path) -> list[dict[str, str]]:
    return [{k: v for k, v in row.items() if k not in TIMES} for row in rows_in(out)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return saved_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory, models: list[Path]) -> Path:
    """The folder of a finished sweep over two models."""
    out = tmp_path_factory.mktemp("sweep") / "out"
    swept_into(out, ladder_for(models, models[0].parent / "data.npz"), Here())
    return out


def test_a_row_says_what_optimize_says(done: Path, models: list[Path]) -> None:
    rows = {row["size"]: row for row in rows_in(done) if row["model"] == "net0"}
    assert list(rows) == ["original", "100%", "50%", "30%"]
    data = models[0].parent / "data.npz"
    found = onnxfde.optimize(models[0], max_params=0.5, quotient="refit", data=data)
    again = found.report.to_dict()
    row = rows["50%"]
    assert int(row["parameters"]) == again["parameters"]["after"]
    assert float(row["relative_l2"]) == again["verification"]["relative_l2"]
    assert row["held_out"] == "True"
    proof = again["certificate"]
    assert float(row["certified_change"]) == proof["outputs"][0]["bound"] + proof["rounding"]
    assert int(rows["original"]["parameters"]) == again["parameters"]["before"]
    onnx.checker.check_model(str(done / row["file"]))


def test_sizes_are_kept(done: Path) -> None:
    for row in rows_in(done):
        if row["size"].endswith("%"):
            assert float(row["parameters_percent"]) <= float(row["size"].rstrip("%"))


def test_nothing_is_computed_twice(done: Path, models: list[Path]) -> None:
    again, before = Here(), rows_in(done)
    swept_into(done, ladder_for(models, models[0].parent / "data.npz"), again)
    assert again.computed == []
    assert rows_in(done) == before


def test_a_stopped_sweep_goes_on(done: Path, models: list[Path], tmp_path: Path) -> None:
    out, ladder = tmp_path / "out", ladder_for(models, models[0].parent / "data.npz")
    first = Here(most=2)
    with pytest.raises(KeyboardInterrupt, match="2 of 6 points are kept in "):
        swept_into(out, ladder, first)
    assert len(rows_in(out)) == 3
    with (out / "points.jsonl").open("a") as stream:
        stream.write('{"key": "cut o')
    second = Here()
    swept_into(out, ladder, second)
    assert len(first.computed) == 2
    assert len(second.computed) == 4
    assert without_times(out) == without_times(done)


def test_external_weights_lie_beside_each_model_and_old_ones_go(
    models: list[Path], tmp_path: Path
) -> None:
    path, out = tmp_path / "in" / "net0.onnx", tmp_path / "out"
    path.parent.mkdir()
    found: list[set[str]] = []
    for model in models:
        onnx.save(
            onnx.load(model), path, save_as_external_data=True, location="w", size_threshold=0
        )
        ladder = ladder_for([path], models[0].parent / "data.npz")
        swept_into(out, replace(ladder, rungs=ladder.rungs[1:]), Here())
        named = set[str]()
        for row in rows_in(out)[1:]:
            whole = onnx.load(out / row["file"])
            assert whole.graph.initializer[0].raw_data
            light = onnx.load(out / row["file"], load_external_data=False)
            entries = [
                entry for tensor in light.graph.initializer for entry in tensor.external_data
            ]
            named |= {e.value for e in entries if e.key == "location"}
        found.append(named)
        assert {file.name for file in (out / "net0").glob("*.data")} == named
        assert len(named) == 2
    assert not found[0] & found[1]


@pytest.mark.parametrize("changed", ["model", "data", "settings"])
def test_what_depends_on_something_else_is_computed_again(
    models: list[Path], tmp_path: Path, changed: str
) -> None:
    own = saved_models(tmp_path, 1)
    out, data = tmp_path / "out", tmp_path / "data.npz"
    swept_into(out, ladder_for(own, data), Here())
    ladder = ladder_for(own, data)
    if changed == "model":
        own[0].write_bytes(models[1].read_bytes())
    elif changed == "data":
        data.write_bytes(saved_data(tmp_path))
    else:
        ladder = replace(ladder, options=replace(ladder.options, seed=1))
    again = Here()
    swept_into(out, ladder, again)
    assert len(again.computed) == 3


def test_what_another_model_replaced_is_computed_again(models: list[Path], tmp_path: Path) -> None:
    out, model = tmp_path / "out", tmp_path / "net.onnx"
    for source, points in ((0, 3), (1, 3), (0, 3), (0, 0)):
        model.write_bytes(models[source].read_bytes())
        pool = Here()
        swept_into(out, ladder_for([model]), pool)
        assert len(pool.computed) == points
        for row in rows_in(out):
            if row["file"]:
                found = hashlib.sha256((out / row["file"]).read_bytes()).hexdigest()
                assert row["sha256"] == found


def test_copies_of_a_model_have_rows_and_files_of_their_own(
    models: list[Path], tmp_path: Path
) -> None:
    copies = [tmp_path / folder / "net.onnx" for folder in ("a", "b")]
    for copy in copies:
        copy.parent.mkdir()
        copy.write_bytes(models[0].read_bytes())
    swept_into(tmp_path / "out", ladder_for(copies), Here())
    files = [row["file"].partition("/")[0] for row in rows_in(tmp_path / "out") if row["file"]]
    assert files == ["net"] * 3 + ["net-2"] * 3


def saved_data(folder: Path) -> bytes:
    np.savez(folder / "other.npz", x=np.ones((150, 6), np.float32))
    return (folder / "other.npz").read_bytes()


def test_a_model_that_fails_keeps_its_rows_and_the_reason(
    models: list[Path], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"no model")
    gone = tmp_path / "gone.onnx"
    found = swept_into(tmp_path / "out", ladder_for([bad, models[0], gone]), Here())
    rows = rows_in(tmp_path / "out")
    assert [row["failure"] for row in rows if row["model"] == "net0"] == [""] * 4
    for name in ("bad", "gone"):
        own = [row for row in rows if row["model"] == name]
        assert len(own) == 3
        assert all(f"{name}.onnx" in row["failure"] for row in own)
    assert [bool(one.made) for one in found] == [False, True, False]
    index = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert "gone.onnx: no such file" in index


def test_a_reason_is_noted_once_for_each_model(models: list[Path], tmp_path: Path) -> None:
    ladder, noted = ladder_for(models, tmp_path / "wide.npz"), list[str]()
    np.savez(tmp_path / "wide.npz", x=np.ones((150, 7), np.float32))
    with opened_results(tmp_path / "out", models) as results:
        sweep = Sweep(ladder, results, "onnxfde sweep …", Progress(note=noted.append))
        sweep.plan()
        sweep.run(Here())
    assert [line.split(":")[0] for line in noted] == ["net0 100%", "net1 100%"]


def test_models_of_one_name_have_folders_of_their_own(models: list[Path], tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    same = tmp_path / "a" / "NET0.onnx"
    same.write_bytes(models[1].read_bytes())
    found = swept_models([models[0], same, models[0]], Path("data/{name}.npz"))
    assert [model.name for model in found] == ["net0", "NET0-2"]
    assert [str(model.data) for model in found] == ["data/net0.npz", "data/NET0.npz"]


@pytest.mark.parametrize("name", ["..", "sweep.csv", "points.jsonl", "index.html"])
def test_results_stay_in_a_folder_of_their_own(
    models: list[Path], tmp_path: Path, name: str
) -> None:
    model, out = tmp_path / f"{name}.onnx", tmp_path / "box" / "out"
    model.write_bytes(models[0].read_bytes())
    swept_into(out, ladder_for([model]), Here())
    assert os.listdir(tmp_path / "box") == ["out"]
    assert [row["file"] for row in rows_in(out)][1:] == [
        f"model/{size}-percent.onnx" for size in (100, 50, 30)
    ]


@pytest.mark.skipif(os.name != "posix", reason="other systems have no such names")
def test_a_name_that_is_no_text_is_a_name(models: list[Path], tmp_path: Path) -> None:
    model = tmp_path / os.fsdecode(b"b\xff ad.onnx")
    model.write_bytes(models[0].read_bytes())
    swept_into(tmp_path / "out", ladder_for([model]), Here())
    links = Elements((tmp_path / "out" / "index.html").read_text(encoding="utf-8")).named("a")
    assert links
    for link in links:
        assert os.path.isfile(tmp_path / "out" / os.fsdecode(unquote_to_bytes(str(link["href"]))))


@pytest.mark.parametrize("kind", SIZE_GOALS)
def test_a_size_that_cannot_be_had_names_the_option_that_was_given(
    models: list[Path], kind: SizeKind
) -> None:
    ladder = replace(ladder_for(models), rungs=rungs_of([("2", 2)]), kind=kind)
    failure = run_point(ladder.tasks_of(ladder.models[0])[0]).failure or ""
    assert failure.startswith("--sizes")
    assert "--max" not in failure


def test_sizes_that_look_alike_are_two() -> None:
    sizes = (("100%", 1.0), ("1", 1), ("12.3456789%", 0.123456789), ("12.3456788%", 0.123456788))
    found = rungs_of(sizes)
    assert [rung.text for rung in found] == [text for text, _ in sizes]
    assert len({rung.stem for rung in found}) == 4


def test_folders_and_globs_stand_for_their_files(models: list[Path]) -> None:
    folder = models[0].parent
    assert [m.path for m in swept_models([folder], None)] == models
    assert [m.path for m in swept_models([folder / "net*.onnx"], None)] == models
    with pytest.raises(UsageError, match="no file has such a name"):
        swept_models([folder / "nothing*.onnx"], None)
    with pytest.raises(UsageError, match=r"write {name} where"):
        swept_models([folder], Path("data/{nam}.npz"))


def test_a_folder_with_other_files_is_left_alone(models: list[Path], tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="no sweep wrote"):
        swept_into(tmp_path, ladder_for(models), Here())
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_model_in_the_folder_of_results_is_refused(done: Path) -> None:
    with pytest.raises(UsageError, match="where results go"):
        swept_into(done, ladder_for([done / "net0" / "50-percent.onnx"]), Here())


@pytest.mark.skipif(os.name != "posix", reason="other systems have no such locks")
def test_two_sweeps_do_not_write_into_one_folder(models: list[Path], tmp_path: Path) -> None:
    with (
        opened_results(tmp_path / "out", models),
        pytest.raises(OutputError, match="another sweep"),
        opened_results(tmp_path / "out", models),
    ):
        raise AssertionError


def test_two_processes_give_the_same_table(done: Path, models: list[Path], tmp_path: Path) -> None:
    ladder = ladder_for(models, models[0].parent / "data.npz")
    before = dict(os.environ)
    with LocalPool(2) as pool:
        swept_into(tmp_path / "out", ladder, pool)
    assert dict(os.environ) == before
    assert without_times(tmp_path / "out") == without_times(done)
    assert active_children() == []


class Killing:
    """A pool whose processes are killed after the first outcome."""

    def __init__(self, pool: LocalPool) -> None:
        self.pool, self.killed = pool, 0

    def outcomes(self, tasks: Iterator[PointTask]) -> Iterator[tuple[PointTask, PointOutcome]]:
        for found in self.pool.outcomes(tasks):
            if not self.killed:
                for process in active_children():
                    assert process.pid is not None
                    os.kill(process.pid, signal.SIGKILL)
                    self.killed += 1
            yield found


def test_a_lost_process_costs_time_only(done: Path, models: list[Path], tmp_path: Path) -> None:
    ladder = ladder_for(models, models[0].parent / "data.npz")
    with LocalPool(2) as pool:
        killing = Killing(pool)
        swept_into(tmp_path / "out", ladder, killing)
    assert killing.killed
    assert without_times(tmp_path / "out") == without_times(done)


def test_a_process_that_is_killed_while_it_sends_its_result_is_lost(tmp_path: Path) -> None:
    """The result is larger than what fits on the line before it is read."""
    rng, model = np.random.default_rng(0), tmp_path / "net.onnx"
    shapes = ((32, 16), (32,), (40_000, 32), (40_000,))
    onnx.save(mlp(*(rng.normal(size=shape).astype(np.float32) for shape in shapes)), model)
    ladder = replace(ladder_for([model]), rungs=rungs_of([("100%", 1.0)]))
    process = PointProcess.started(str(tmp_path))
    try:
        process.give(ladder.tasks_of(ladder.models[0])[0])
        assert process.line.poll(60)
        process.process.kill()
        assert process.take() is None
    finally:
        process.end()
    assert not process.process.is_alive()


def test_times_that_could_not_be_measured_are_measured_by_the_next_sweep(
    models: list[Path], tmp_path: Path
) -> None:
    ladder, out, gone = ladder_for(models[:1]), tmp_path / "out", tmp_path / "gone.onnx"
    rows = swept_into(out, ladder, Here())[0].rows
    limits = ladder.options.range_used
    for model, known in ((gone, False), (models[0], True), (gone, True)):
        with opened_results(out, models) as results:
            found = timed_rows(rows, model, results, limits)
        assert all((row.latency_ms is not None) is known for row in found)


@pytest.mark.skipif(os.name != "posix", reason="other systems have no such signals")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_no_temporary_file_outlives_a_sweep_that_is_stopped(
    tmp_path: Path, how: signal.Signals
) -> None:
    scratch, model, rng = tmp_path / "scratch", tmp_path / "net.onnx", np.random.default_rng(0)
    scratch.mkdir()
    shapes = ((300, 100), (300,), (10, 300), (10,))
    onnx.save(mlp(*(rng.normal(size=shape).astype(np.float32) for shape in shapes)), model)
    words = ["sweep", str(model), "--out", str(tmp_path / "out"), "--sizes", "50%"]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with subprocess.Popen([sys.executable, "-m", "onnxfde", *words], env=environment) as process:
        try:
            assert within_seconds(60, lambda: any(scratch.rglob("onnxfde-point-*")))
            process.send_signal(how)
            process.wait(60)
        finally:
            process.kill()
    assert within_seconds(30, lambda: not os.listdir(scratch))


def within_seconds(seconds: float, happens: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not happens() and time.monotonic() < end:
        time.sleep(0.1)
    return happens()


def test_files_that_travel_give_the_same(
    models: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from a folder whose name JSON writes otherwise, and from the one that one is in."""
    odd = tmp_path / 'a "folder\\'
    shutil.copytree(models[0].parent, odd)
    same_where_they_are_and_elsewhere(odd / "net0.onnx", odd / "data.npz")
    monkeypatch.chdir(odd)
    same_where_they_are_and_elsewhere(Path("net0.onnx"), Path("data.npz"))


def same_where_they_are_and_elsewhere(model: Path, data: Path) -> None:
    ladder = ladder_for([model], data)
    task = ladder.tasks_of(ladder.models[0])[1]
    here, there = run_point(task), run_point(task.packed())
    assert (here.files, here.page.count("<svg")) == (there.files, there.page.count("<svg"))
    assert here.report is not None
    assert there.report is not None
    for found in (here.report, there.report):
        del found["seconds"]
    assert here.report == there.report


def test_another_version_is_refused(models: list[Path]) -> None:
    ladder = ladder_for(models)
    task = replace(ladder.tasks_of(ladder.models[0])[0], version="0.0.1")
    assert "install the same version" in (run_point(task).failure or "")


def test_pages_lead_to_each_other(done: Path) -> None:
    for page in done.rglob("*.html"):
        elements = Elements(page.read_text(encoding="utf-8"))
        for link in elements.named("a"):
            assert (page.parent / unquote(str(link["href"]))).is_file()
        assert len(elements.named("table")) == len(elements.named("caption"))
        assert all(found["role"] == "img" for found in elements.named("svg"))
    onnx.load(done / "net0" / "30-percent.onnx")
    assert (done / "net1" / "curve.svg").read_text(encoding="utf-8").startswith("<svg")


def test_a_small_curve_and_a_link_to_a_model_say_what_they_are(done: Path) -> None:
    index = Elements((done / "index.html").read_text(encoding="utf-8"))
    smallest = next(row for row in rows_in(done) if row["size"] == "30%")
    told = f"the outputs change by {percent(float(smallest['relative_l2']))}"
    assert told in str(index.named("svg")[0]["aria-label"])
    page = Elements((done / "net0" / "report.html").read_text(encoding="utf-8"))
    names = [found["aria-label"] for found in page.named("a") if "aria-label" in found]
    assert names == [f"model file of {size}" for size in ("100%", "50%", "30%")]


def test_the_page_of_a_model_shows_the_numbers_of_the_table(done: Path) -> None:
    page = Elements((done / "net0" / "report.html").read_text(encoding="utf-8"))
    shown = {cell["data-value"] for cell in page.named("td") if "data-value" in cell}
    for row in rows_in(done):
        if row["model"] == "net0":
            assert {row["parameters"], row["bytes"], row["multiply_adds"]} <= shown
            change = float(row["relative_l2"])
            assert change in {float(value) for value in shown if value}


SORTED = """<!doctype html><title>?</title><iframe srcdoc="{page}"></iframe><script>
onload = () => {{ const page = document.querySelector("iframe").contentDocument;
const names = () => [...page.querySelectorAll("tbody th")].map((c) => c.textContent.trim());
const head = page.querySelectorAll("thead th")[0].querySelector("button");
const first = names(); head.click(); const up = names(); head.click(); const down = names();
document.title = [first, up, down].map((n) => n.join("+")).join(" "); }};</script>"""


@needs_browser
def test_the_index_can_be_sorted_and_loads_nothing(done: Path, tmp_path: Path) -> None:

    for name in ("index.html", "net0/report.html", "net0/50-percent.html"):
        seen = opened(done / name, tmp_path)
        assert (seen.console, seen.requests) == ([], [])
    assert width_in(done / "index.html", 390, tmp_path) <= 390
    outer = tmp_path / "sorting.html"
    outer.write_text(SORTED.format(page=escape((done / "index.html").read_text(encoding="utf-8"))))
    assert "<title>net0+net1 net0+net1 net1+net0</title>" in opened(outer, tmp_path).dom


def test_the_command_does_all_of_it(models: list[Path], tmp_path: Path) -> None:
    out, bad = tmp_path / "out", tmp_path / "<script>.onnx"
    bad.write_bytes(models[0].read_bytes())
    data = models[0].parent / "data.npz"
    words: list[str | Path] = [
        "sweep",
        bad,
        "--out",
        out,
        "--data",
        data,
        "--sizes",
        "60%,1%",
        "--quotient",
        "refit",
    ]
    result = run(*words)
    assert result.exit_code == 0, result.output
    rows = rows_in(out)
    assert [row["size"] for row in rows] == ["original", "60%", "1%"]
    assert float(rows[1]["latency_ms"]) > 0
    assert float(rows[0]["speedup"]) == 1.0
    assert "too few" in rows[2]["failure"]
    assert "are known already" in run(*words).stderr
    assert not [name for name in os.listdir(out) if name.startswith(".onnxfde")]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "--out DIR"),
        (("--out", "o", "--jobs", "0"), "--jobs 0"),
        (("--out", "o", "--jobs", "2", "--cluster", "tcp://localhost:1"), "drop one"),
        (("--out", "o", "--by", "time"), "--by 'time'"),
        (("--out", "o", "--sizes", ","), "names no size"),
        (("--out", "o", "--sizes", "200%"), "200%"),
    ],
)
def test_wrong_usage_is_one_line(
    models: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("sweep", models[0], *words)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
    assert reason in result.stderr
    assert not os.listdir(tmp_path)


def test_curves_can_be_drawn_as_png(done: Path, models: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is missing: pip install 'onnxfde[plot]'")
    ladder = ladder_for(models, models[0].parent / "data.npz")
    found = swept_into(done, ladder, Here())
    write_png(found[0], tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
