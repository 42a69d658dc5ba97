"""Values in templates are escaped, whatever they are."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxfde.pages.markup import Markup, as_markup, fill_in, fragments


class Parsed(HTMLParser):
    """The elements and the text of a piece of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert [name for name, _ in attrs] in ([], ["title"])

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text())
def test_text_never_becomes_an_element_or_an_attribute(text: str) -> None:
    shown = Parsed(f'<b title="{as_markup(text)}">{as_markup(text)}</b>')
    assert shown.tags == ["b"]
    assert len(shown.text) == len(text)


@given(st.text(st.characters(categories=("Cs", "Cc", "Cf"))))
def test_any_text_can_be_written(text: str) -> None:
    written = as_markup(text)
    assert len(written.encode("utf-8")) >= len(text)
    assert not {"\u202e", "\x00", "\x1b"} & set(written)
    assert written == as_markup(Markup(written))


def test_markup_stays() -> None:
    assert as_markup(Markup("<b>")) == "<b>"


def test_a_place_without_a_value_is_an_error() -> None:
    with pytest.raises(KeyError, match="before"):
        fill_in("report.html", "size", name="a", after="b", left="c")
    with pytest.raises(KeyError, match="more"):
        fill_in("report.html", "hash", text="a", more="b")


@pytest.mark.parametrize("file", ["report.html", "plots.html", "frame.html"])
def test_every_fragment_is_used(file: str) -> None:
    from pathlib import Path

    source = "".join(p.read_text() for p in Path("onnxfde/pages").glob("*.py"))
    assert [name for name in fragments(file) if f'"{name}"' not in source] == []
