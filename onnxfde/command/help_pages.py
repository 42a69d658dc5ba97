"""Help that names arguments as the usage line does, groups options, and explains tables.

The heading of an option is its `rich_help_panel`; rich itself is not used for help.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from typer.core import TyperCommand

from onnxfde.command.ascii_fallback import readable
from onnxfde.command.plain_values import sparing_validators

OTHER_OPTIONS = "Options"
"""The heading of options that name none."""


class CommandWithHelp(TyperCommand):
    """A command with plain names of arguments and headings above its options."""

    columns: ClassVar[Mapping[str, str]] = {}
    """The meaning of the columns of the table that the command prints."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The arguments and options."""
        return sparing_validators(super().get_params(ctx))

    def get_help(self, ctx: Any) -> str:
        """The page in characters that the terminal can show."""
        return readable(super().get_help(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words behind the name of the command."""
        names = [argument_name(p) for p in self.params if is_argument(p)]
        return [self.options_metavar or "", *names]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options under their headings."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            heading = getattr(parameter, "rich_help_panel", None) or OTHER_OPTIONS
            record = parameter.get_help_record(ctx)
            if is_argument(parameter):
                heading = "Arguments"
                record = (argument_name(parameter), getattr(parameter, "help", None) or "")
            if record is not None:
                sections.setdefault(heading, []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)
        if self.columns:
            with formatter.section("Columns of the table"):
                formatter.write_dl(list(self.columns.items()))


def is_argument(parameter: Any) -> bool:
    """Whether a parameter is an argument, not an option."""
    return bool(parameter.param_type_name == "argument")


def argument_name(parameter: Any) -> str:
    """The name of an argument, with dots if it may be repeated."""
    return f"{parameter.metavar}{'' if parameter.nargs == 1 else '...'}"


def explaining(columns: Mapping[str, str]) -> type[CommandWithHelp]:
    """The class of a command whose help explains the columns of its table."""
    return type("CommandWithTable", (CommandWithHelp,), {"columns": columns})
