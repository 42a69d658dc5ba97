"""The command line: all commands, and the boundary at which every error becomes one line.

An error of ours says what is wrong and what to do. Any other error is a fault of onnxfde: it ends
in one line as well, and `onnxfde --debug COMMAND …` shows where it comes from.
"""

from __future__ import annotations

import io
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
from onnxfde.command.plain_values import sparing_validators
from onnxfde.command.streams import GuardedStdout, open_closed_streams
from onnxfde.command.sweep_command import sweep_command
from onnxfde.command.target_command import targets
from onnxfde.command.verify_command import verify_command
from onnxfde.errors import OnnxfdeError, in_one_line, without_controls

FORESEEN: tuple[type[Any], ...] = (
    OnnxfdeError,
    BrokenPipeError,
    typer.Exit,
    typer.Abort,
    typer.BadParameter.__mro__[2],
)
"""How a command may end: our own errors, a pipe that nobody reads, and what typer raises. The last
one is the base class of its usage errors, which has no public name."""


class Commands(TyperGroup):
    """Commands whose errors are one line on stderr."""

    def main(self, *args: Any, **more: Any) -> Any:
        """Parse the command line and run a command."""
        let_streams_show_everything()
        try:
            return super().main(*args, **more)
        except OnnxfdeError as error:
            say(f"onnxfde: {without_controls(str(error))}", err=True)
            sys.exit(error.exit_code)

    def get_params(self, ctx: Any) -> list[Any]:
        """The options of all commands."""
        return sparing_validators(super().get_params(ctx))

    def make_context(self, *args: Any, **more: Any) -> Any:
        """Parse the command line up to the command."""
        with interruptible():
            return super().make_context(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            with interruptible():
                return super().invoke(ctx)
        except FORESEEN:
            raise
        except Exception as error:  # the boundary: users get one line, whatever goes wrong
            if ctx.params.get("debug"):
                raise
            say(f"onnxfde: {boundary_line(error, ctx.invoked_subcommand)}", err=True)
            raise typer.Exit(1) from None


def boundary_line(error: Exception, command: str | None) -> str:
    """What is said of an error that was not foreseen."""
    where = f"onnxfde --debug {command or 'COMMAND'} … shows where"
    if isinstance(error, MemoryError):
        return f"not enough memory; {where}"
    return f"unexpected error ({type(error).__name__}: {in_one_line(error)}); {where}"


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
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where an unexpected error comes from.")
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
    "sweep": (
        sweep_command,
        {},
        "sweep nets/*.onnx --out sweep --data 'data/{name}.npz' --jobs 4",
    ),
    "demo": (demo_command, {}, "demo --save demo"),
    "bench": (bench_command, BENCH_MEANINGS, "bench in.onnx out.onnx --batch 1,32"),
}
"""Every command, the columns of its table, and an example of its use."""

for name, (command, columns, example) in COMMANDS.items():
    app.command(name, cls=explaining(columns), epilog=f"Example: onnxfde {example}")(command)
app.add_typer(targets, name="target")


def main() -> None:
    """Run a command; SIGTERM and SIGHUP clean up as an interruption does."""
    open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = GuardedStdout.around(sys.stdout)
    ends = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    for number in ends:
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        app(prog_name="onnxfde")
    finally:
        for number in (*ends, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)  # nothing is left to clean up
