"""Folders in which `optimize` is stopped, and what may be found there afterwards."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.common.stopped_commands import Ended, run

MERGE = ("--eps", "0", "--quotient", "refit", "--quiet", "--no-certify")
OTHER = ("--neurons", "5", "--quotient", "refit", "--quiet", "--no-certify", "--force")
UNCHANGED = ("--skip", "*", "--quiet")
FORCED = (*MERGE, "--force")
JOURNAL = (
    '{"model": {"temporary": "gone", "target": "%s", "inode": 0}, "data": [], "takes_away": false,'
    ' "unneeded": ["thesis.txt", "sub/keys.txt"], "new_folders": []}'
)
"""What an older version obeyed, whoever had written it."""
CONTENT_NAME = re.compile(r"\.[0-9a-f]{16}\.data$")
"""How the name of a data file ends that is named after its content."""
DATA = ".*.data"
"""What stands for that in a listing."""


@dataclass(frozen=True)
class Scenario:
    """One way to call `optimize`."""

    name: str
    out: str = "out/out.onnx"
    external: str = ""
    """Where the input keeps its weights; empty: inside."""
    old: bool = False
    """Whether OUT exists, made from the same input with other settings."""
    again: bool = False
    """Whether the same command was given before."""
    hostile: bool = False
    """Whether somebody put files into the folder of OUT that are called like ours."""
    options: tuple[str, ...] = MERGE
    report: str = "out/report.json"

    @property
    def in_place(self) -> bool:
        """Whether OUT is IN."""
        return self.out == "in/in.onnx"

    def words(self, folder: Path, options: tuple[str, ...] | None = None) -> list[str]:
        """The command in a folder."""
        report = ["--json", str(folder / self.report)] if self.report else []
        paths = [str(folder / "in/in.onnx"), str(folder / self.out)]
        return ["optimize", *paths, *(self.options if options is None else options), *report]


SCENARIOS = (
    Scenario("new OUT"),
    Scenario("new OUT, external", external="w.bin"),
    Scenario("new OUT, unchanged", options=UNCHANGED),
    Scenario("new OUT, external, unchanged", external="sub/w.bin", options=UNCHANGED),
    Scenario("old OUT", old=True),
    Scenario("old OUT, external", old=True, external="w.bin"),
    Scenario("old OUT, unchanged", old=True, options=UNCHANGED, report=""),
    Scenario("old OUT, external, unchanged", old=True, external="w.bin", options=UNCHANGED),
    Scenario("old OUT beside IN, external", "in/out.onnx", "w.bin", old=True, report="in/r.json"),
    Scenario("same command again, external", again=True, external="w.bin", options=FORCED),
    Scenario("hostile names, external", external="w.bin", hostile=True),
    Scenario("hostile names, old OUT, external", external="w.bin", old=True, hostile=True),
    Scenario("in place", "in/in.onnx"),
    Scenario("in place, external", "in/in.onnx", "w.bin"),
    Scenario("in place, external, again", "in/in.onnx", "w.bin", again=True, options=FORCED),
    Scenario("in place, external, hostile names", "in/in.onnx", "w.bin", hostile=True),
    Scenario("in place, external, no report", "in/in.onnx", "in.onnx.data", report=""),
    Scenario("old .ort", "out/out.ort", old=True),
    Scenario("new .ort, external", "out/out.ort", "w.bin"),
)


@dataclass(eq=False)
class Template:
    """A scenario made ready: the folder to begin with, and how it looks after a whole run."""

    scenario: Scenario
    folder: Path
    before: str | None
    after: str
    listing: Counter[str]
    others: set[str] = field(default_factory=set)
    """What OUT may be if two runs write it."""
    events: int = 0
    seconds: float = 0.0

    @classmethod
    def made(cls, scenario: Scenario, folder: Path) -> Template:
        """Make the files of a scenario, and run it once without a disturbance."""
        start, done = folder / "start", folder / "done"
        for name in ("in", "out"):
            (start / name).mkdir(parents=True)
        write_input(start / "in/in.onnx", scenario.external)
        if scenario.old or scenario.again:
            options = OTHER if scenario.old else scenario.options
            require_done(run(scenario.words(start, options), start))
        before = digest(start / scenario.out)
        copied(scenario, start, done)
        ended = run(scenario.words(done), done)
        require_done(ended)
        after = digest(done / scenario.out)
        assert after is not None
        events = int(ended.stderr.rsplit("events", 1)[1])
        listing = listing_of(done)
        shutil.rmtree(done)
        return cls(scenario, start, before, after, listing, {after}, events, ended.seconds)

    def copied(self, folder: Path) -> Path:
        """A fresh copy of the folder."""
        return copied(self.scenario, self.folder, folder)

    def learn_two_runs(self, scratch: Path) -> None:
        """Learn what OUT may be if this run and another one write it, in any order."""
        ours, other = self.scenario.options, OTHER
        for number, order in enumerate(((ours,), (other,), (ours, other), (other, ours))):
            folder = self.copied(scratch / str(number))
            for options in order:
                require_done(run(self.scenario.words(folder, options), folder))
            self.others.add(digest(folder / self.scenario.out) or "")
            shutil.rmtree(folder)


def copied(scenario: Scenario, source: Path, folder: Path) -> Path:
    """A copy of a folder, with hostile names in it if the scenario has any."""
    shutil.copytree(source, folder)
    if scenario.hostile:
        make_hostile((folder / scenario.out).parent, (folder / scenario.out).name)
    return folder


def make_hostile(folder: Path, out: str) -> None:
    """Put into a folder what a run may take for its own: names, links, pipes, and a journal."""
    outside = folder.parent / "outside"
    (outside / "inside").mkdir(parents=True)
    for name in ("precious", "inside/precious"):
        (outside / name).write_text("precious")
    for name in ("thesis.txt", "sub/keys.txt", ".onnxfde-notes", f"{out}.0123456789abcdef.data"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("precious")
    (folder / ".onnxfde-x").mkdir()
    (folder / ".onnxfde-x/journal.json").write_text(JOURNAL % out)
    links = {
        ".onnxfde-1-0000000000000001.tmp": outside / "precious",
        ".onnxfde-1-0000000000000002.tmp": outside / "inside",
        ".onnxfde-1-0000000000000003.tmp": Path("gone"),
        f"{out}.fedcba9876543210.data": outside / "precious",
        f"{out}.data": Path("thesis.txt"),
    }
    for name, target in links.items():
        (folder / name).symlink_to(target)
    os.mkfifo(folder / ".onnxfde-1-0000000000000004.tmp")
    os.mkfifo(folder / "pipe.onnx")
    (folder / ".onnxfde-1-0000000000000005.tmp").mkdir()
    (folder / ".onnxfde-1-0000000000000005.tmp/precious").write_text("precious")


def require_done(ended: Ended) -> None:
    """Raise unless a command that nothing disturbs succeeds."""
    if ended.code:
        raise RuntimeError(f"optimize ended with {ended.code}: {ended.stderr}")


def write_input(path: Path, external: str) -> None:
    """Gemm → Mul(h, h) → Gemm, in which twelve of 24 neurons are copies."""
    rng = np.random.default_rng(0)
    rows = np.tile(rng.normal(size=(12, 8)), (2, 1)).astype(np.float32)
    weights = {"W": rows, "V": rng.normal(size=(40, 24)).astype(np.float32)}
    nodes = [
        helper.make_node("Gemm", ["x", "W"], ["h"], "first", transB=1),
        helper.make_node("Mul", ["h", "h"], ["s"], "square"),
        helper.make_node("Gemm", ["s", "V"], ["y"], "second", transB=1),
    ]
    sizes = (("x", 8), ("y", 40))
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", d]) for n, d in sizes)
    tensors = [numpy_helper.from_array(values, name) for name, values in weights.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    if external:
        (path.parent / external).parent.mkdir(exist_ok=True)
    onnx.save_model(
        model, path, save_as_external_data=bool(external), location=external or None,
        size_threshold=0,
    )  # fmt: skip


def digest(path: Path) -> str | None:
    """A hash of a model together with its weights; None if there is no file."""
    if not path.exists():
        return None
    if path.suffix == ".ort":
        return hashlib.sha256(path.read_bytes()).hexdigest()
    model = onnx.load(path)
    if not model.graph.node:
        raise ValueError("a model without nodes")
    return hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()


def listing_of(folder: Path) -> Counter[str]:
    """The files of a folder; those named after their content get one name."""
    files = (p for p in folder.rglob("*") if p.is_file() or p.name.startswith(".onnxfde-"))
    return Counter(CONTENT_NAME.sub(DATA, str(p.relative_to(folder))) for p in files)


def foreign_of(folder: Path, scenario: Scenario) -> dict[str, tuple[int, object]]:
    """Everything that must stay as it is: all but OUT, its own data file, and the report."""
    out = folder / scenario.out
    may_change = {out, folder / scenario.report, *own_data(out)}
    every = (p for p in folder.rglob("*") if p not in may_change)
    return {str(p.relative_to(folder)): state_of(p) for p in every}


def own_data(out: Path) -> list[Path]:
    """The data files of a model that are named after their content."""
    if not out.exists() or out.suffix == ".ort":
        return []
    model = onnx.load(out, load_external_data=False)
    entries = (e for tensor in model.graph.initializer for e in tensor.external_data)
    names = {e.value for e in entries if e.key == "location" and CONTENT_NAME.search(e.value)}
    return [out.with_name(name) for name in names]


def state_of(path: Path) -> tuple[int, object]:
    """What tells whether a file, a link, a folder or a pipe was changed."""
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return mode, os.readlink(path)
    return mode, path.read_bytes() if stat.S_ISREG(mode) else None


def is_json(path: Path) -> bool:
    """Whether a report is whole."""
    try:
        json.loads(path.read_text())
    except (OSError, ValueError):
        return False
    return True
