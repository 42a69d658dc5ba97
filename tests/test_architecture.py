"""Imports point one way, and heavy modules are loaded only when they are used."""

from __future__ import annotations

import ast
import functools
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

import onnxfde

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "onnxfde"
FILES = {
    **{
        ".".join(("onnxfde", *path.relative_to(PACKAGE).with_suffix("").parts)): path
        for path in PACKAGE.rglob("*.py")
        if path.stem != "__init__" and "passes" not in path.parts
    },
    **{f"onnxfde.passes.{path.stem}": path for path in (ROOT / "passes").glob("[!_]*.py")},
}
RUNNER = "onnxfde.machines.targets.runner"
RUNTIME = "onnxfde.running.runtime"

LEAVES = {
    "estimates",
    "row_split",
    "data_use",
    "deadline",
    "errors",
    "limits",
    "memory",
    "numbers",
    "options",
    "progress",
    "threads",
}
TOP = {"goals", "inspection", "optimization", "pipeline", "report"}
BELOW = {
    "leaves": set(),
    "neurons": {"leaves"},
    "lumping": {"leaves", "neurons"},
    "graph": {"leaves", "neurons"},
    "proof": {"leaves", "neurons", "graph"},
    "running": {"leaves", "neurons", "graph"},
    "passes": {"leaves", "neurons", "lumping", "graph", "proof", "running"},
    "machines": {"leaves", "graph", "running"},
    "top": {"leaves", "neurons", "lumping", "graph", "proof", "running", "passes", "machines"},
    "pages": {"leaves", "graph", "running", "passes", "machines", "top"},
    "sweeping": {"leaves", "graph", "running", "machines", "top", "pages"},
}
ALLOWED: dict[str, set[str]] = {**BELOW, "command": {*BELOW}}
"""Which rooms a room may import besides itself."""


def room(module: str) -> str:
    first = module.split(".")[1]
    if first in LEAVES:
        return "leaves"
    return "top" if first in TOP else {"demo": "command", "__main__": "command"}.get(first, first)


@functools.cache
def imports(path: Path) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def users_of(package: str) -> set[str]:
    return {
        name
        for name, path in FILES.items()
        if any(i == package or i.startswith(package + ".") for i in imports(path))
    }


def test_modules_import_each_other_in_one_direction_only() -> None:
    graph = {name: imports(path) & FILES.keys() for name, path in FILES.items()}
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) == len(FILES)


@pytest.mark.parametrize(
    ("package", "door"),
    [
        ("onnx_graphsurgeon", {"onnxfde.graph.new_nodes"}),
        ("onnxruntime", {RUNTIME, RUNNER}),
        ("PIL", {"onnxfde.running.image_folder"}),
        ("distributed", {"onnxfde.sweeping.cluster"}),
        ("matplotlib", {"onnxfde.sweeping.png_plot"}),
        ("tenseal", {"onnxfde.machines.engines.seal_operations"}),
        ("ezkl", {"onnxfde.machines.engines.ezkl_engine"}),
    ],
)
def test_one_module_talks_to_each_library(package: str, door: set[str]) -> None:
    assert users_of(package) == door


def test_only_the_graph_room_talks_to_onnx() -> None:
    assert {room(name) for name in users_of("onnx")} == {"graph"}


def test_every_module_has_a_room() -> None:
    assert {room(name) for name in FILES} == ALLOWED.keys()


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_room_imports_only_what_is_below_it(name: str) -> None:
    own = room(name)
    used = {room(other) for other in imports(FILES[name]) & FILES.keys()}
    assert used - {own} <= ALLOWED[own]


def test_benchmark_scripts_share_code_through_helpers_only() -> None:
    folder = ROOT / "benchmarks"
    scripts = {f"benchmarks.{path.stem}" for path in folder.glob("[!_]*.py")}
    scripts |= {f"benchmarks.{path.name}" for path in folder.iterdir() if path.is_dir()}
    scripts.remove("benchmarks.common")
    for path in (p for p in folder.rglob("*.py") if ".cache" not in p.parts):
        own = f"benchmarks.{path.relative_to(folder).with_suffix('').parts[0]}"
        used = {name for name in imports(path) if name.startswith("benchmarks.")}
        assert {".".join(name.split(".")[:2]) for name in used} & scripts <= {own}


def test_the_runner_needs_nothing_of_onnxfde() -> None:
    assert not {i for i in imports(FILES[RUNNER]) if i.startswith("onnxfde")}


def loaded_by(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = {"numpy", "onnx", "onnxruntime", "scipy", "onnx_graphsurgeon", "rich", "PIL"}
    assert not heavy & loaded_by("import onnxfde")


def test_the_command_line_starts_without_the_heavy_modules() -> None:
    heavy = {"numpy", "onnx", "onnxruntime", "scipy", "onnx_graphsurgeon", "PIL"}
    assert not heavy & loaded_by("import onnxfde.command.main")


def test_merging_independent_neurons_does_not_load_graphsurgeon() -> None:
    code = (
        "import numpy as np, onnxfde; from tests.models import mlp; r = np.random.default_rng(0)\n"
        "w = [r.normal(size=s).astype('f') for s in ((8, 6), (8,), (2, 8), (2,))]\n"
        "assert onnxfde.optimize(mlp(*w), neurons=5).report.changed"
    )
    assert not {"onnx_graphsurgeon", "PIL"} & loaded_by(code)


def test_no_public_name_is_hidden_by_a_module() -> None:
    assert not {f"onnxfde.{name}" for name in onnxfde.__all__} & FILES.keys()
    assert dir(onnxfde) == sorted(onnxfde.__all__)


def test_public_names_exist() -> None:
    for name in onnxfde.__all__:
        assert getattr(onnxfde, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = onnxfde.nothing


@pytest.mark.parametrize("door", [RUNTIME, RUNNER])
def test_telemetry_is_off_before_onnxruntime_is_imported(door: str) -> None:
    source = FILES[door].read_text()
    assert source.index('"ORT_DISABLE_TELEMETRY"') < source.index("import onnxruntime\n")
