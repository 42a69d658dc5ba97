"""The command line: all commands, and errors that end in one line on stderr."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from onnxfde import __version__
from onnxfde.command.ascii_fallback import let_streams_show_everything, say
from onnxfde.command.bench_command import bench_command
from onnxfde.command.column_meanings import BENCH_MEANINGS, INSPECTION_MEANINGS, LAYER_MEANINGS
from onnxfde.command.demo_command import demo_command
from onnxfde.command.help_pages import explaining
from onnxfde.command.inspect_command import inspect_command
from onnxfde.command.interruption import interruptible
from onnxfde.command.optimize_command import optimize_command
from onnxfde.command.target_command import targets
from onnxfde.command.verify_command import verify_command
from onnxfde.errors import OnnxfdeError


class Commands(TyperGroup):
    """Commands whose errors are one line on stderr."""

    def main(self, *args: Any, **more: Any) -> Any:
        """Parse the command line and run a command."""
        let_streams_show_everything()
        return super().main(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            with interruptible():
                return super().invoke(ctx)
        except OnnxfdeError as error:
            say(f"onnxfde: {error}", err=True)
            raise typer.Exit(error.exit_code) from None


app = typer.Typer(
    cls=Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Make trained ONNX networks smaller by merging neurons that do the same thing.",
    epilog="Try: onnxfde demo",
)


def show_version(wanted: bool) -> None:
    """Print the version and stop."""
    if wanted:
        say(f"onnxfde {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", callback=show_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Options of all commands."""


COMMANDS: dict[str, tuple[Callable[..., None], Mapping[str, str], str]] = {
    "optimize": (
        optimize_command,
        LAYER_MEANINGS,
        "optimize in.onnx out.onnx --eps 0.1 --data calibration.npz",
    ),
    "inspect": (inspect_command, INSPECTION_MEANINGS, "inspect in.onnx --input-range 0:1"),
    "verify": (verify_command, {}, "verify in.onnx out.onnx --data test.npz --tolerance 0.05"),
    "demo": (demo_command, {}, "demo --save demo"),
    "bench": (bench_command, BENCH_MEANINGS, "bench in.onnx out.onnx --batch 1,32"),
}
"""Every command, the columns of its table, and an example of its use."""

for name, (command, columns, example) in COMMANDS.items():
    app.command(name, cls=explaining(columns), epilog=f"Example: onnxfde {example}")(command)
app.add_typer(targets, name="target")


def main() -> None:
    """Entry point; SIGTERM and SIGHUP clean up as an interruption does."""
    for name in {"SIGTERM", "SIGHUP"} & set(dir(signal)):
        signal.signal(getattr(signal, name), lambda number, _: sys.exit(128 + number))
    app(prog_name="onnxfde")
