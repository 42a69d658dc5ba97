"""`onnxfde target`: prepare targets for `bench`."""

from __future__ import annotations

from typing import Annotated

import typer

from onnxfde.command.arguments import Quiet
from onnxfde.command.ascii_fallback import say
from onnxfde.command.help_pages import CommandWithHelp
from onnxfde.errors import UsageError

targets = typer.Typer(no_args_is_help=True, help="Prepare targets for bench.")


@targets.callback()
def target_root() -> None:
    """Prepare targets for bench."""


@targets.command("setup", cls=CommandWithHelp, epilog="Example: onnxfde target setup arm64")
def setup_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to prepare: arm64.")],
    force: Annotated[bool, typer.Option("--force", help="Set up again from scratch.")] = False,
    quiet: Quiet = False,
) -> None:
    """Prepare an emulated ARM processor (155 MB, without root).

    It goes to the cache folder of the user. It needs Debian 12 on x86-64 with gcc.
    """
    from onnxfde.machines.targets import provision, sysroot

    if name != "arm64":
        raise UsageError(f"target setup {name}: only arm64 needs a set-up")
    done = provision.set_up_arm64((lambda _: None) if quiet else say, force)
    if not quiet:
        state = "is set up" if done else "was set up before"
        say(f"arm64 {state} in {sysroot.find_sysroot().folder}")
        say("Try: onnxfde bench MODEL.onnx --target arm64")
