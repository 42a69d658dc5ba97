"""Text for terminals whose encoding lacks a character, such as ε in cp1252: spelled in ASCII."""

from __future__ import annotations

import codecs
import sys
import unicodedata
from contextlib import nullcontext, suppress

import typer

ERROR_HANDLER = "onnxfde"
"""The name under which `spell_in_ascii` is registered as an error handler of codecs."""
ASCII_SPELLINGS = {
    "ε": "eps", "→": "->", "≥": ">=", "≤": "<=", "×": "x", "–": "-", "—": "-", "−": "-", "µ": "u",
    "·": "*", "‖": "||", "′": "'", "’": "'",
}  # fmt: skip


def spelled(text: str, encoding: str) -> str:
    """The text with characters that an encoding does not have spelled in ASCII.

    >>> spelled("120 → 6, ε × 2", "cp1252"), spelled("120 → 6, ε × 2", "ascii")
    ('120 -> 6, eps × 2', '120 -> 6, eps x 2')
    """
    return text.encode(encoding, ERROR_HANDLER).decode(encoding)


def readable(text: str, err: bool = False) -> str:
    """The text as stdout or stderr can show it."""
    stream = sys.stderr if err else sys.stdout
    return spelled(text, stream.encoding or "ascii")


def say(text: str, err: bool = False) -> None:
    """Print a line on stdout or stderr; what stderr cannot take is lost.

    typer would write UTF-8 to a terminal that has only ASCII.
    """
    with suppress(OSError) if err else nullcontext():
        typer.echo(readable(text, err), err=err)


def spell_in_ascii(error: UnicodeError) -> tuple[str, int]:
    """The ASCII spelling of what could not be encoded, and where to go on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(ascii_spelling, error.object[error.start : error.end])), error.end


def ascii_spelling(character: str) -> str:
    """A character in ASCII: as listed, else without its accent, else a question mark."""
    bare = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return ASCII_SPELLINGS.get(character) or bare or "?"


codecs.register_error(ERROR_HANDLER, spell_in_ascii)


def let_streams_show_everything() -> None:
    """Make stdout and stderr spell what they cannot encode, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors=ERROR_HANDLER)
