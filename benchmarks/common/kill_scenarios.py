"""Folders in which `optimize` is stopped, and what may be found there afterwards."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.common.stopped_commands import Ended, run

MERGE = ("--eps", "0", "--quotient", "refit", "--quiet", "--no-certify")
OTHER = ("--neurons", "5", "--quotient", "refit", "--quiet", "--no-certify", "--force")
UNCHANGED = ("--skip", "*", "--quiet")
CONTENT_NAME = re.compile(r"\.[0-9a-f]{16}\.data$")
"""How the name of a data file ends that is named after its content."""


@dataclass(frozen=True)
class Scenario:
    """One way to call `optimize`."""

    name: str
    out: str = "out/out.onnx"
    external: str = ""
    """Where the input keeps its weights; empty: inside."""
    old: bool = False
    """Whether OUT exists, made from the same input with other settings."""
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
    Scenario("in place", "in/in.onnx"),
    Scenario("in place, external", "in/in.onnx", "w.bin"),
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
    listing: list[str]
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
        if scenario.old:
            require_done(run(scenario.words(start, OTHER), start))
            shutil.rmtree(start / "out/report.json", ignore_errors=True)
        before = digest(start / scenario.out)
        shutil.copytree(start, done)
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
        shutil.copytree(self.folder, folder)
        return folder

    def learn_two_runs(self, scratch: Path) -> None:
        """Learn what OUT may be if this run and another one write it, in any order."""
        ours, other = self.scenario.options, OTHER
        for number, order in enumerate(((ours,), (other,), (ours, other), (other, ours))):
            folder = self.copied(scratch / str(number))
            for options in order:
                require_done(run(self.scenario.words(folder, options), folder))
            self.others.add(digest(folder / self.scenario.out) or "")
            shutil.rmtree(folder)


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


def listing_of(folder: Path) -> list[str]:
    """The files of a folder; those named after their content get one name."""
    files = (p for p in folder.rglob("*") if p.is_file() or p.name.startswith(".onnxfde-"))
    return sorted(CONTENT_NAME.sub(".*.data", str(p.relative_to(folder))) for p in files)


def inputs_of(folder: Path, scenario: Scenario) -> dict[str, bytes]:
    """The bytes of the files that must stay as they are."""
    if scenario.in_place:
        return {}
    names = ["in/in.onnx", *([f"in/{scenario.external}"] if scenario.external else [])]
    return {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}


def is_json(path: Path) -> bool:
    """Whether a report is whole."""
    try:
        json.loads(path.read_text())
    except (OSError, ValueError):
        return False
    return True
