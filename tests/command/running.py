"""How tests run a command."""

from __future__ import annotations

import re
from pathlib import Path

from typer.testing import CliRunner, Result

from onnxfde.command.main import app
from onnxfde.demo import demo_data, demo_model
from tests.models import twins

GLY, ROWS = str(demo_model()), str(demo_data())
W, B, V, C = twins()


def without_layers(stderr: str) -> str:
    """What a command says on stderr beside the lines that tell what became of each layer."""
    lines = stderr.splitlines(keepends=True)
    return "".join(line for line in lines if not re.match(r"layer \d+ of \d+ '", line))


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(app, [str(a) for a in args])
