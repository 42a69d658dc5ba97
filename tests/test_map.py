"""The map of the code names modules and functions that exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAP = (ROOT / "onnxfde" / "README.md").read_text(encoding="utf-8")
PLACES = sorted(set(re.findall(r"`([a-z_]+(?:/[a-z0-9_]+)+)(?:\.py)?((?:\.\w+)*)`", MAP)))


@pytest.mark.parametrize(("path", "names"), PLACES)
def test_a_place_that_the_map_names_exists(path: str, names: str) -> None:
    if path.startswith("tests/"):
        assert (ROOT / f"{path}.py").exists()
        return
    found = importlib.import_module(f"onnxfde.{path.replace('/', '.')}")
    for name in filter(None, names.split(".")):
        if name != "py":
            found = getattr(found, name)


def test_the_map_names_every_room() -> None:
    rooms = {path.name for path in (ROOT / "onnxfde").iterdir() if (path / "__init__.py").exists()}
    assert all(f"`{room}/`" in MAP for room in rooms)
