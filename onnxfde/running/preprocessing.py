"""How stored arrays become a model's inputs: value = (x · scale − mean) / std.

Each of the three is one number, or one for each channel. `layout` says where the *data* has its
channels: nhwc last, nchw first; they are moved if the model wants them elsewhere.

    scale=1/255,mean=0.485:0.456:0.406,std=0.229:0.224:0.225,layout=nhwc
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from onnxfde.errors import OptionError, UsageError
from onnxfde.graph.input_specs import InputSpec

ImageLayout = Literal["nhwc", "nchw"]
NUMBER_WORDS = ("scale", "mean", "std")
WORDS = (*NUMBER_WORDS, "layout")
EXAMPLE = "scale=1/255,mean=0.485:0.456:0.406,std=0.229:0.224:0.225"


@dataclass(frozen=True)
class Preprocessing:
    """What is done to the values of one input: (x · scale − mean) / std, and a move of channels."""

    scale: tuple[float, ...] = ()
    """One factor, or one for each channel; none given: 1."""
    mean: tuple[float, ...] = ()
    """Subtracted after scaling."""
    std: tuple[float, ...] = ()
    """Divides what is left."""
    layout: ImageLayout | None = None
    """Where the data has its channels; None: where the model wants them."""

    @classmethod
    def parse(cls, text: str) -> Preprocessing:
        """Read `scale=1/255,mean=0.5`.

        >>> Preprocessing.parse("scale=1/4,std=0.5:2,layout=nhwc")
        Preprocessing(scale=(0.25,), mean=(), std=(0.5, 2.0), layout='nhwc')
        """
        found: dict[str, Any] = {}
        for item in text.split(","):
            word, equals, value = (part.strip() for part in item.partition("="))
            if not equals:
                raise UsageError(f"--preprocess {text}: {why_no_item(item.strip())}")
            if word not in WORDS:
                known = ", ".join(WORDS)
                raise UsageError(f"--preprocess {text}: '{word}' is not one of {known}")
            if word in found:
                raise UsageError(f"--preprocess {text}: {word} is given twice")
            found[word] = parsed_layout(value) if word == "layout" else parsed_numbers(word, value)
        return cls(**found)

    @property
    def changes_values(self) -> bool:
        """Whether anything is said about values, be it that they stay as they are (scale=1)."""
        return bool(self.scale or self.mean or self.std)


def why_no_item(item: str) -> str:
    """What is wrong with a part of --preprocess without an equals sign."""
    try:
        parsed_number(item)
    except ValueError:
        return f"'{item}' is not WORD=VALUE; write it like {EXAMPLE}"
    return f"'{item}' has no name; write one number for each channel with colons, mean=0.5:0.4:0.4"


def parsed_layout(text: str) -> ImageLayout:
    """The layout of the data."""
    for known in get_args(ImageLayout):
        if text.lower() == known:
            return known  # type: ignore[no-any-return]
    raise UsageError(
        f"--preprocess layout={text}: write nhwc if the data has its channels last, nchw if first"
    )


def parsed_numbers(word: str, text: str) -> tuple[float, ...]:
    """One number, or several with colons between them."""
    try:
        found = tuple(parsed_number(part) for part in text.split(":"))
    except (ValueError, OverflowError):
        raise UsageError(
            f"--preprocess {word}={text}: give a number such as 0.5 or 1/255, or one for each "
            "channel with colons, such as 0.5:0.4:0.4"
        ) from None
    if word == "std" and min(found) <= 0:
        raise UsageError(f"--preprocess std={text}: a standard deviation is above 0")
    if word == "scale" and 0 in found:
        raise UsageError(f"--preprocess scale={text}: 0 would make all inputs equal")
    return found


def parsed_number(text: str) -> float:
    """A finite number, or the quotient of two; ValueError otherwise."""
    above, slash, below = text.partition("/")
    value = float(above)
    if slash:
        divisor = float(below)
        value = value / divisor if divisor else math.nan
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def parse_named(text: str) -> tuple[str, Preprocessing]:
    """Read `NAME:scale=1/255`, or the same without a name.

    >>> parse_named("x:0:mean=1:2")
    ('x:0', Preprocessing(scale=(), mean=(1.0, 2.0), std=(), layout=None))
    """
    name, _, _ = text.partition("=")[0].rpartition(":")
    return name, Preprocessing.parse(text[len(name) + 1 :] if name else text)


def preprocessing_by_input(
    texts: Sequence[str], specs: tuple[InputSpec, ...]
) -> dict[str, Preprocessing]:
    """What `--preprocess [NAME:]TEXT`, once or several times, says about each input."""
    names, found = [spec.name for spec in specs], dict[str, Preprocessing]()
    for text in texts:
        name, parsed = parse_named(text)
        if not name and len(names) > 1:
            raise OptionError(
                f"--preprocess {text}: the model has the inputs {', '.join(names)}; "
                f"write NAME:{text} for one of them"
            )
        own = name or (names[0] if names else "")
        if own not in names:
            known = ", ".join(names) or "none"
            raise OptionError(f"--preprocess {text}: no input '{own}'; the inputs are {known}")
        if own in found:
            raise UsageError(f"--preprocess is given twice for input '{own}'")
        found[own] = parsed
    return found
