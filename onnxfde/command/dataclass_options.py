"""Commands whose arguments and options are the fields of a dataclass, and back again."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Collection, Iterator
from dataclasses import MISSING, fields
from functools import wraps
from typing import Any, TypeVar, get_args, get_type_hints

from onnxfde.limits import option

_T = TypeVar("_T")


def takes_fields(kind: Callable[..., _T]) -> Callable[[Callable[[_T], None]], Callable[..., None]]:
    """Decorate a command that takes one dataclass, so that typer sees its fields as options."""

    def decorated(command: Callable[[_T], None]) -> Callable[..., None]:
        @wraps(command)
        def called(**given: Any) -> None:
            command(kind(**given))

        hints = get_type_hints(kind, include_extras=True)
        parameters = [
            p.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
            for name, p in inspect.signature(kind).parameters.items()
        ]
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {name: hints[name] for name in inspect.signature(kind).parameters}
        return called

    return decorated


def command_line(command: str, given: Any, leave_out: Collection[str] = ()) -> str:
    """The command that has these arguments and options, as one types it into a shell."""
    hints = get_type_hints(type(given), include_extras=True)
    arguments: list[str] = []
    options: list[str] = []
    for one in fields(given):
        value = getattr(given, one.name)
        if one.default is MISSING:
            arguments += map(str, value if isinstance(value, list | tuple) else [value])
        elif value != one.default and one.name not in leave_out:
            options += option_words(option_spelling(one.name, hints[one.name]), value)
    return shlex.join(["onnxfde", command, *arguments, *options])


def option_spelling(name: str, hint: Any) -> str:
    """How an option is written; two spellings of a flag, for true and false, are `--a/--b`."""
    parts = [part for part in get_args(hint) if hasattr(part, "param_decls")]
    words = [word for part in parts for word in (part.default, *(part.param_decls or ()))]
    return next((w for w in words if isinstance(w, str) and w.startswith("--")), option(name))


def option_words(spelling: str, value: Any) -> Iterator[str]:
    """The words of one option."""
    yes, _, no = spelling.partition("/")
    if isinstance(value, bool):
        yield yes if value else no
        return
    for one in value if isinstance(value, list | tuple) else [value]:
        yield from (yes, str(one))
