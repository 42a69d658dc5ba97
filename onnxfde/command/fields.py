"""Commands whose arguments and options are the fields of one dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")


def takes_fields(kind: Callable[..., T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """Let typer see a command's one argument as the fields of its dataclass."""

    def decorated(command: Callable[[T], None]) -> Callable[..., None]:
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
