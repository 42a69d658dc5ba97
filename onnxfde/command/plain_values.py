"""Values of options that need no validator: text, paths, words of a list, and what is not given.

typer passes every value but flags through a validator of pydantic, even that of an option which is
not given, and importing pydantic takes longer than importing numpy. Numbers, and values that are
wrong, are left to typer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

Convert = Callable[[Any, Any], Any]

LEFT_TO_TYPER = object()
"""Stands for a value that typer must convert or refuse."""


def sparing_validators(parameters: list[Any]) -> list[Any]:
    """The same parameters of a command, which take plain values as they are."""
    for parameter in parameters:
        kind = kind_of(parameter)
        if kind is not None and "process_value" not in vars(parameter):
            parameter.process_value = partial(processed, parameter, kind, parameter.process_value)
    return parameters


def processed(parameter: Any, kind: Any, convert: Convert, context: Any, value: Any) -> Any:
    """The value of a parameter, without typer if it is plain."""
    found = plain_value(value, kind, parameter.multiple or parameter.nargs == -1)
    if found is LEFT_TO_TYPER or (value is None and parameter.required):
        return convert(context, value)
    called = parameter.callback
    return found if called is None else called(context, parameter, found)


def kind_of(parameter: Any) -> Any:
    """The type that a parameter has if it is given; None if this version of typer does not tell."""
    annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    if get_origin(annotation) in (None, list, Literal):
        return annotation
    kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
    return kinds[0] if len(kinds) == 1 else None


def plain_value(value: Any, kind: Any, repeated: bool) -> Any:
    """What a command gets for a value, unless that is left to typer."""
    if value is None:
        return () if repeated else None
    if kind == list[str] and all(isinstance(each, str) for each in value):
        return list(value)
    if kind is Path and isinstance(value, str):
        return Path(value)
    plain = value in get_args(kind) if get_origin(kind) is Literal else type(value) is kind
    return value if plain else LEFT_TO_TYPER
