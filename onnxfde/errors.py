"""All errors that onnxfde raises on purpose.

OnnxfdeError            exit code 1
├── ModelError          the model file cannot be read, or is not valid
├── DataError           the data file does not fit the model
├── AlgebraError        a polynomial system, or a partition of its variables, makes no sense
├── OptionError         an option does not fit the model, such as the name of an unknown layer
│   └── UsageError      a bad value, or options that cannot be combined (exit code 2)
├── OutputError         the result cannot be written
├── TargetError         a target is not set up, cannot be reached, or cannot run a model
├── GoalMissed          what was asked for was not reached on data kept for that; nothing is written
├── RuntimeUnavailable  neither onnxruntime nor onnx.reference can run the model
│   └── RunStopped      running it took too long
└── VerificationError   the result is not what was promised; nothing is written
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MOST_CHARACTERS = 300
"""The length at which a library's message is cut. Chosen: about three lines of a terminal; not
tuned."""


def in_one_line(error: BaseException) -> str:
    r"""What an exception of a library says, as one line of bounded length.

    >>> in_one_line(ValueError("No such operator\n\n==> Context: node 'h'"))
    "No such operator (node 'h')"
    >>> in_one_line(KeyError())
    'KeyError'
    """
    text, *more = (
        " ".join(part.split()) for part in without_controls(str(error)).split("==> Context: ")
    )
    line = f"{text} ({'; '.join(more)})" if more else text or type(error).__name__
    return line if len(line) <= MOST_CHARACTERS else f"{line[:MOST_CHARACTERS]}…"


def without_controls(text: str) -> str:
    """The text with spaces in place of line breaks, escapes and other control characters."""
    return "".join(c if c.isprintable() else " " for c in text)


class OnnxfdeError(Exception):
    """The base class; its message is one line that names the cause and a remedy."""

    exit_code = 1


class ModelError(OnnxfdeError):
    """The model cannot be read or is not a valid ONNX model."""


class DataError(OnnxfdeError):
    """The data file cannot be read or does not fit the model's inputs."""


class AlgebraError(OnnxfdeError):
    """A polynomial system, or a partition of its variables, makes no sense."""


class OptionError(OnnxfdeError):
    """An option makes no sense, alone or for this model."""


class UsageError(OptionError):
    """A value that makes no sense for any model, or options that cannot be combined."""

    exit_code = 2


class OutputError(OnnxfdeError):
    """The result cannot be written; a file that was there before is intact."""


class TargetError(OnnxfdeError):
    """A target is not set up, cannot be reached, or cannot run a model."""


class GoalMissed(OnnxfdeError):  # noqa: N818 - a result, not a mistake
    """What a user asked for was not reached on data that was kept for that."""


class RuntimeUnavailable(OnnxfdeError):  # noqa: N818 - a state of the machine, not a mistake
    """No runtime on this machine can execute the model."""


class RunStopped(RuntimeUnavailable):
    """Running the model took too long and was stopped."""


class VerificationError(OnnxfdeError):
    """The result differs from the original by more than was promised."""


@contextmanager
def after_writing(written: Path | None) -> Iterator[None]:
    """Say what is done already if something else cannot be written."""
    try:
        yield
    except OutputError as error:
        done = "" if written is None else f"{written} was written, but "
        raise OutputError(f"{done}{error}") from None
