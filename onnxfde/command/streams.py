"""stdout and stderr that are closed or full."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from onnxfde.errors import OutputError


def open_closed_streams() -> None:
    """Let stdin, stdout and stderr lead nowhere if they are closed (`>&-`).

    Otherwise the next file that is opened takes their place, and is written to by mistake.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", closefd=False))


class GuardedStdout(io.TextIOWrapper):
    """stdout that raises OutputError where nothing more can be written, as on a full disk."""

    @classmethod
    def around(cls, stream: io.TextIOWrapper) -> GuardedStdout:
        """The same stream, guarded; the one given cannot be used any more."""
        encoding, errors, lines = stream.encoding, stream.errors, stream.line_buffering
        return cls(stream.detach(), encoding, errors, line_buffering=lines)

    def write(self, text: str, /) -> int:
        """Write text."""
        with self.output_errors():
            return super().write(text)

    def flush(self) -> None:
        """Write what is buffered."""
        with self.output_errors():
            super().flush()

    @contextmanager
    def output_errors(self) -> Iterator[None]:
        """Say why stdout cannot be written; a pipe that nobody reads is left to typer."""
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            # Python tries again at the end, and must not fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            raise OutputError(f"stdout cannot be written ({error.strerror})") from None
