"""Options that are taken as they are: the same values that typer makes, without pydantic."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import typer.main

from onnxfde.command.main import app
from onnxfde.command.plain_values import sparing_validators
from tests.command.running import GLY, run

OPTIMIZE: Any = typer.main.get_command(app)
PARAMETERS = {p.name: p for p in OPTIMIZE.commands["optimize"].params}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", "a b.onnx"),
        ("model", "-"),
        ("data", None),
        ("data", "x.npz"),
        ("eps", None),
        ("eps", ["0.1", "fc=0"]),
        ("quotient", None),
        ("quotient", "refit"),
        ("semantics", "paper"),
        ("keep", "25%"),
        ("neurons", None),
        ("neurons", "12"),
        ("seed", 0),
        ("verify", True),
        ("certify", None),
    ],
)
def test_a_value_is_what_typer_makes_of_it(name: str, value: Any) -> None:
    (parameter,) = sparing_validators([PARAMETERS[name]])
    own, by_typer = (
        parameter.process_value(None, value),
        type(parameter).process_value(parameter, None, value),
    )
    assert own == by_typer
    assert type(own) is type(by_typer)


def test_a_word_that_is_no_choice_is_refused() -> None:
    result = run("optimize", GLY, "out.onnx", "--quotient", "best")
    assert result.exit_code == 2
    assert "'best'" in result.stderr


def test_a_missing_argument_is_refused() -> None:
    result = run("optimize", GLY)
    assert result.exit_code == 2
    assert "OUT" in result.stderr


def test_a_command_starts_without_pydantic() -> None:
    code = (
        "import sys; from onnxfde.command.main import app\n"
        "try: app(['optimize', 'none.onnx', 'out.onnx', '--quotient', 'refit', '--eps', '0'])\n"
        "except SystemExit as end: sys.exit(end.code if 'pydantic' not in sys.modules else 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, "no such file" in done.stderr) == (1, True)
