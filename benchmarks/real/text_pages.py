"""Manual pages: their NAME line and the first paragraph of their DESCRIPTION, as plain text."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

BREAKS = frozenset((".HP", ".IP", ".LP", ".P", ".PP", ".SS", ".TP"))
"""Requests that begin a paragraph."""
TOGETHER = frozenset((".BI", ".BR", ".IB", ".IR", ".RB", ".RI"))
"""Requests whose words stand without blanks between them."""
WORDS = TOGETHER | {".B", ".I", ".SB", ".SM"}
"""Requests whose words are text."""
CHARACTERS = {
    r"\-": "-", r"\e": "\\", r"\ ": " ", r"\~": " ", r"\(aq": "'", r"\(dq": '"', r"\(em": " - ",
    r"\(en": "-", r"\(lq": '"', r"\(rq": '"', r"\(bu": "*", r"\(ti": "~", r"\(ha": "^",
}  # fmt: skip
ESCAPE = re.compile(r"\\(?:f\[[^]]*\]|f\(..|f.|s[-+]?\d+|\*\[[^]]*\]|\*\(..|\*.|\(..|\[[^]]*\]|.)")
ARGUMENT = re.compile(r'"([^"]*)"|(\S+)')


class Page(NamedTuple):
    """What a page is about."""

    title: str
    """Its NAME line: names - what it does."""
    text: str
    """The first paragraph of its DESCRIPTION."""


def plain(line: str) -> str:
    r"""A line without comments, fonts and escapes.

    >>> plain(r'\fBprintf\fR \- formatted\ output \" a comment')
    'printf - formatted output'
    """
    line = line.split(r"\"")[0]
    line = ESCAPE.sub(lambda found: CHARACTERS.get(found.group(), ""), line)
    return " ".join(line.split())


def words_of(request: str, line: str) -> str:
    """The text of a request for bold or italic words.

    >>> words_of(".BR", 'read (2) ","')
    'read(2),'
    """
    words = [quoted or bare for quoted, bare in ARGUMENT.findall(line)]
    return plain(("" if request in TOGETHER else " ").join(words))


def paragraphs(roff: str) -> Iterator[tuple[str, str]]:
    """The paragraphs of a page and the titles of their sections."""
    section, text = "", ""
    for line in roff.splitlines():
        request, _, rest = line.partition(" ")
        if request in BREAKS or request == ".SH" or not line.strip():
            if text:
                yield section, text
            text = ""
            section = rest.strip(' "').upper() if request == ".SH" else section
        elif not line.startswith((".", "'")) or request in WORDS:
            more = words_of(request, rest) if request in WORDS else plain(line)
            text = f"{text} {more}".strip()
    if text:
        yield section, text


def page_of(roff: str) -> Page | None:
    """A page that has both parts, or None."""
    first: dict[str, str] = {}
    for section, text in paragraphs(roff):
        first.setdefault(section, text)
    title, text = first.get("NAME", ""), first.get("DESCRIPTION", "")
    return Page(title, text) if " - " in title and len(text.split()) >= LEAST else None


LEAST = 8
"""Words that a description has at least; chosen."""


def pages_below(root: Path) -> list[Page]:
    """The pages in a folder, in the order of their files; links and copies once."""
    files = sorted(path for path in root.rglob("usr/share/man/man*/*.gz") if not path.is_symlink())
    found = (page_of(gzip.decompress(file.read_bytes()).decode(errors="replace")) for file in files)
    return list(dict.fromkeys(page for page in found if page))
