"""Which array of the data each input of a model takes: `--input NAME=ARRAY`, else its own name.

A model with one input takes the only array that is no labels, whatever its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnxfde.data_use import DataUse
from onnxfde.errors import DataError, OptionError
from onnxfde.graph.input_specs import InputSpec
from onnxfde.running.data_rows import LABELS


def places_of_inputs(
    specs: tuple[InputSpec, ...], names: Sequence[str], use: DataUse, source: str
) -> tuple[dict[str, str], str]:
    """The array of every input, and of labels if there are any; and the source with what is told.

    DataError if there is none, OptionError if `--input` names an input that the model has not.
    """
    given = dict(use.inputs)
    refuse_unknown(given, specs)
    places = {spec.name: given.get(spec.name, spec.name) for spec in specs}
    labels = LABELS if use.labels is None else use.labels
    if use.labels is not None and labels not in names:
        known = ", ".join(sorted(names)) or "nothing"
        raise DataError(f"{source} has no array '{labels}' for --labels (it has {known})")
    others = [name for name in names if name != labels]
    if len(specs) == 1 and not given and specs[0].name not in names and len(others) == 1:
        places = {specs[0].name: others[0]}
    for name, place in places.items():
        if place not in names:
            raise DataError(f"{source} {why_missing(name, place, names)}")
    told = [f"'{place}' as input '{name}'" for name, place in places.items() if place != name]
    if labels in names and LABELS not in places and labels not in places.values():
        places[LABELS] = labels
    return places, f"{source} ({', '.join(told)})" if told else source


def why_missing(name: str, place: str, names: Sequence[str]) -> str:
    """What is wrong with data that has no such array."""
    known = ", ".join(sorted(names)) or "nothing"
    if place != name:
        return f"has no array '{place}' for the model's input '{name}' (it has {known})"
    others = sorted(other for other in names if other != LABELS)
    hint = f"; say which it is, e.g. --input {name}={others[0]}" if others else ""
    return f"has no array '{name}' for the model's input (it has {known}){hint}"


def refuse_unknown(given: Mapping[str, str], specs: tuple[InputSpec, ...]) -> None:
    """Refuse an array for an input that the model does not have."""
    inputs = [spec.name for spec in specs]
    for name, place in given.items():
        if name not in inputs:
            known = ", ".join(inputs) or "none"
            raise OptionError(f"--input {name}={place}: no input '{name}'; the inputs are {known}")


def require_single(specs: tuple[InputSpec, ...], use: DataUse, what: str) -> None:
    """Raise unless data without names of arrays is enough for a model."""
    if len(specs) != 1:
        raise DataError(f"{what}, the model has {len(specs)} inputs: use .npz")
    if use.labels is not None:
        raise OptionError(f"--labels {use.labels}: {what}; drop it")
    if use.inputs:
        name, place = use.inputs[0]
        raise OptionError(f"--input {name}={place}: {what}; drop it")
