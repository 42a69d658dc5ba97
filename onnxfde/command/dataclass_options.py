"""Commands whose arguments and options are the fields of a dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, get_type_hints

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
