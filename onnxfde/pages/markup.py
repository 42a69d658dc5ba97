"""Templates and data, kept apart: every value is escaped when it is put into a template.

    <!--# name -->        begins a fragment of a template file
    {{ place }}           is fill_in with a value: text, which is escaped, or `Markup`

A fragment has no logic; what is repeated is a fragment that is fill_in several times.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

TEMPLATES = Path(__file__).parent / "templates"
PLACE = re.compile(r"\{\{ (\w+) \}\}")
FRAGMENT = re.compile(r"^<!--# (\w+) -->\n", re.MULTILINE)
KEPT = "\n\N{NO-BREAK SPACE}"
"""Characters that are kept although they do not print; those that turn the direction of the text
behind them around are not."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def as_markup(value: object) -> Markup:
    r"""A value as HTML: text is escaped, without characters that would change what is around it.

    >>> as_markup("<b>\x00"), as_markup(Markup("<b>"))
    ('&lt;b&gt;\ufffd', '<b>')
    """
    if isinstance(value, Markup):
        return value
    plain = str(value).encode("utf-8", "replace").decode()
    plain = "".join(c if c.isprintable() or c in KEPT else "\ufffd" for c in plain)
    return Markup(html.escape(plain))


def joined_markup(parts: Iterable[object], between: str = "") -> Markup:
    """Several values one after the other."""
    return Markup(between.join(map(as_markup, parts)))


@cache
def fragments(file: str) -> dict[str, str]:
    """The fragments of a template file by their names."""
    _, *parts = FRAGMENT.split((TEMPLATES / file).read_text(encoding="utf-8"))
    return {name: text.removesuffix("\n") for name, text in zip(*[iter(parts)] * 2, strict=True)}


def fill_in(file: str, fragment: str, /, **values: object) -> Markup:
    """A fragment with values in its places; each place needs one, each value a place."""
    text = fragments(file)[fragment]
    places = set(PLACE.findall(text))
    if places != values.keys():
        raise KeyError(f"{file} {fragment}: {sorted(places ^ values.keys())}")
    return Markup(PLACE.sub(lambda place: as_markup(values[place[1]]), text))


@cache
def template_text(file: str) -> str:
    """A file that goes into pages as it is."""
    return (TEMPLATES / file).read_text(encoding="utf-8")


def whole_page(title: str, body: Markup, script: str | None = None) -> str:
    """A page that loads nothing; only the script given runs, and no other."""
    code = template_text(script) if script else ""
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    return fill_in(
        "frame.html",
        "page",
        title=title,
        scripts=Markup(f"'sha256-{digest}'" if code else "'none'"),
        style=Markup(template_text("style.css")),
        body=body,
        script=Markup(f"<script>{code}</script>" if code else ""),
    )
