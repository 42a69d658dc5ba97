"""Arguments that several commands share, and how their text is parsed.

Files are `readable=False`, which asks typer not to check that: a file that cannot be read is an
error like any other (exit code 1), not wrong usage (exit code 2).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxfde.command.ascii_fallback import say
from onnxfde.errors import UsageError
from onnxfde.limits import Limit
from onnxfde.options import DEFAULT_RANGE

if TYPE_CHECKING:
    from onnxfde.options import Range

In = Annotated[Path, typer.Argument(metavar="IN", help="The model, an .onnx file.", readable=False)]
DataFile = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="PATH",
        readable=False,
        help="Real inputs: .npz with one array per input ('y' for labels or targets), a folder of "
        "such files, .npy, a .csv table with a header, or a folder of images (subfolders are "
        "classes).",
    ),
]
Labels = Annotated[
    str | None,
    typer.Option(
        "--labels",
        metavar="NAME",
        help="The column of a table, or array, that holds labels or targets. [default: y]",
    ),
]
Preprocess = Annotated[
    list[str] | None,
    typer.Option(
        "--preprocess",
        metavar="[NAME:]TEXT",
        help="What is done to the data: (x*scale - mean) / std, each one number or one per "
        "channel, e.g. scale=1/255,mean=0.5:0.4:0.4,std=0.2. For arrays of images whose channels "
        "are not where the model has them: layout=nhwc if the data has them last, layout=nchw if "
        "the data has them first. NAME is an input, if there are several (repeatable).",
    ),
]
InputNames = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME=ARRAY",
        help="The model's input NAME takes ARRAY of the data, if their names differ (repeatable).",
    ),
]
InputRange = Annotated[
    str | None,
    typer.Option(
        "--input-range",
        metavar="LO:HI",
        help="Range of the inputs when there is no data, and for the certificate. [default: -1:1]",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Also print steps, reasons and times.")
]


def parse_eps(values: list[str]) -> tuple[float | None, dict[str, float]]:
    """The ε of all layers (`0.1` or `10%`) and those of single layers (`LAYER=0.05`).

    >>> parse_eps(["10%", "fc=0.05"])
    (0.1, {'fc': 0.05})
    """
    overall, by_layer = None, {}
    for text in values:
        name, _, number = text.rpartition("=")
        try:
            value = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
        except ValueError:
            raise UsageError(f"--eps {text}: '{number}' is not a number") from None
        if name:
            by_layer[name] = value
        elif overall is not None:
            raise UsageError("--eps is given twice; for single layers write LAYER=EPS")
        else:
            overall = value
    return overall, by_layer


def parse_names(inputs: list[str] | None) -> dict[str, str]:
    """Arrays of the data by inputs, from `--input NAME=ARRAY`."""
    found: dict[str, str] = {}
    for text in inputs or ():
        name, _, array = text.rpartition("=")
        if not name or not array:
            raise UsageError(f"--input {text}: write NAME=ARRAY, the model's input first")
        if name in found:
            raise UsageError(f"--input is given twice for '{name}'")
        found[name] = array
    return found


def parse_share(
    text: str | None, name: str = "--keep", wanted: str = "a share such as 25% or 0.25"
) -> float | None:
    """`25%` or `0.25` as a fraction.

    >>> parse_share("25%"), parse_share("0.25")
    (0.25, 0.25)
    """
    if text is None:
        return None
    try:
        share = float(text.removesuffix("%"))
    except ValueError:
        raise UsageError(f"{name} {text}: give {wanted}") from None
    if text.endswith("%") and share > 100:
        raise UsageError(f"{name} {text}: more than 100 %")
    return share / 100 if text.endswith("%") else share


def parse_limit(text: str | None, name: str) -> Limit | None:
    """`20000000`, `50%` or `0.5` as a number or a share.

    >>> parse_limit("20000000", "--max-macs"), parse_limit("50%", "--max-macs")
    (20000000, 0.5)
    """
    plain = (text or "").replace("_", "").replace(",", "")
    if plain.isdecimal():
        return int(plain)
    return parse_share(text, name, "a whole number such as 20000, or a share such as 25%")


def parse_points(text: str | None) -> float | None:
    """Points of accuracy: `0.5`, or the same with a sign behind it.

    >>> parse_points("0.5"), parse_points("0.5%")
    (0.5, 0.5)
    """
    try:
        return None if text is None else float(text.removesuffix("%"))
    except ValueError:
        raise UsageError(f"--max-drop {text}: give points such as 0.5") from None


def parse_batches(text: str | None) -> list[int]:
    """`1,32` as numbers."""
    try:
        return [int(part) for part in text.split(",")] if text is not None else []
    except ValueError:
        raise UsageError(f"--batch {text}: give whole numbers such as 1,32") from None


def range_of(text: str | None) -> Range:
    """The input range, or the default one."""
    from onnxfde.running.random_inputs import parse_range

    return DEFAULT_RANGE if text is None else parse_range(text)


def remark_on_range(data: Path | None, input_range: str | None) -> None:
    """Say on stderr that the range of the inputs is a guess."""
    if data is None and input_range is None:
        say(
            "note: inputs are assumed to be in [-1, 1]; --data or --input-range works better",
            err=True,
        )


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """The name and the numbers in `input:1,3,224,224`.

    >>> parse_shape("x:0:1,3")
    ('x:0', (1, 3))
    """
    name, _, numbers = text.rpartition(":")
    try:
        shape = tuple(int(n) for n in numbers.split(","))
    except ValueError:
        shape = (0,)
    if not name or min(shape) < 1:
        raise UsageError(f"--shape {text}: write NAME:1,3,224,224 with lengths of 1 or more")
    return name, shape
