"""How tests run a command."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner, Result

from onnxfde.command.main import app
from onnxfde.demo import demo_data, demo_model
from tests.models import twins

GLY, ROWS = str(demo_model()), str(demo_data())
W, B, V, C = twins()


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(app, [str(a) for a in args])
