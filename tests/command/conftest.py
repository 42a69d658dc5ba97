"""Fixtures of all tests of commands."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.command.running import B, C, V, W
from tests.models import mlp


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A layer in which three neurons are present twice."""
    path = tmp_path / "in.onnx"
    onnx.save(mlp(W, B, V, C), path)
    return path
