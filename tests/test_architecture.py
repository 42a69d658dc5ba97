"""Imports point one way, and heavy modules are loaded only when they are used."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

import onnxfde

ROOT = Path(__file__).parents[1]
FILES = {
    **{f"onnxfde.{p.stem}": p for p in (ROOT / "onnxfde").glob("*.py") if p.stem != "__init__"},
    **{f"onnxfde.passes.{p.stem}": p for p in (ROOT / "passes").glob("*.py")},
    **{f"onnxfde.targets.{p.stem}": p for p in (ROOT / "onnxfde" / "targets").glob("[!_]*.py")},
}
RUNNER = "onnxfde.targets.runner"
MATHEMATICS = {
    "polynomial", "metric", "distance", "closure", "lumping", "merging", "quotients", "budget",
    "system", "refinement", "intervals", "curves", "maps", "bounds", "chains", "objective",
    "descent", "evidence", "spectrum", "minimal", "ratios",
}  # fmt: skip


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


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
        ("onnx", {"onnxfde.graph"}),
        ("onnx_graphsurgeon", {"onnxfde.graph"}),
        ("onnxruntime", {"onnxfde.runtime", RUNNER}),
    ],
)
def test_one_module_talks_to_each_graph_library(package: str, door: set[str]) -> None:
    assert users_of(package) == door


def test_the_mathematics_knows_nothing_of_graphs() -> None:
    allowed = {f"onnxfde.{name}" for name in MATHEMATICS | {"options", "errors", "threads"}}
    for name in MATHEMATICS:
        own = {i for i in imports(FILES[f"onnxfde.{name}"]) if i in FILES}
        assert own <= allowed, name


def test_the_runner_needs_nothing_of_onnxfde() -> None:
    assert not {i for i in imports(FILES[RUNNER]) if i.startswith("onnxfde")}


def loaded_by(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = {"numpy", "onnx", "onnxruntime", "scipy", "onnx_graphsurgeon", "rich"}
    assert not heavy & loaded_by("import onnxfde")


def test_the_command_line_starts_without_the_heavy_modules() -> None:
    heavy = {"numpy", "onnx", "onnxruntime", "scipy", "onnx_graphsurgeon"}
    assert not heavy & loaded_by("import onnxfde.cli")


def test_merging_independent_neurons_does_not_load_scipy_or_graphsurgeon() -> None:
    code = (
        "import numpy as np, onnxfde; from tests.models import mlp; r = np.random.default_rng(0)\n"
        "w = [r.normal(size=s).astype('f') for s in ((8, 6), (8,), (2, 8), (2,))]\n"
        "assert onnxfde.optimize(mlp(*w), neurons=5).report.changed"
    )
    assert not {"scipy", "onnx_graphsurgeon"} & loaded_by(code)


def test_no_public_name_is_hidden_by_a_module() -> None:
    assert not {f"onnxfde.{name}" for name in onnxfde.__all__} & FILES.keys()
    assert dir(onnxfde) == sorted(onnxfde.__all__)


def test_public_names_exist() -> None:
    for name in onnxfde.__all__:
        assert getattr(onnxfde, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = onnxfde.nothing


@pytest.mark.parametrize("door", ["onnxfde.runtime", RUNNER])
def test_telemetry_is_off_before_onnxruntime_is_imported(door: str) -> None:
    source = FILES[door].read_text()
    assert source.index('"ORT_DISABLE_TELEMETRY"') < source.index("import onnxruntime\n")
