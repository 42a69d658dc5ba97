"""Opens pages in Debian's Chromium, without a window and without a driver."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no chromium: apt-get install chromium"
)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-extensions", "--enable-logging=stderr", "--virtual-time-budget=2000",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
ASKED = r'site=file://[^"]*","[^{}]*?"?url":"([a-z]+://[^"]*)'
"""What a page asked for in Chromium's log; the browser itself asks for other things."""
MEASURE = (
    "<!doctype html><title>?</title><body><iframe style='width:{width}px;height:900px;border:0' "
    'srcdoc="{page}"></iframe><script>onload = () => {{ const root = '
    "document.querySelector('iframe').contentDocument.documentElement; "
    "document.title = root.scrollWidth; }}</script>"
)
"""A page that measures how wide another one is if it has so much room."""


@dataclass(frozen=True)
class Seen:
    """What a browser made of a page."""

    dom: str
    console: list[str]
    requests: list[str]


def opened(page: Path, folder: Path) -> Seen:
    """Open a page; its elements, what is on the console, and what was asked for elsewhere."""
    assert CHROMIUM is not None
    log = folder / "net-log.json"
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", f"--log-net-log={log}"]
    done = subprocess.run(
        [*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120
    )
    console = re.findall(r":CONSOLE.*", done.stderr)
    return Seen(done.stdout, console, re.findall(ASKED, log.read_text()))


def width_in(page: Path, width: int, folder: Path) -> int:
    """How wide a page is in a frame of this width."""
    outer = folder / "measure.html"
    outer.write_text(MEASURE.format(width=width, page=escape(page.read_text())))
    found = re.search(r"<title>(\d+)</title>", opened(outer, folder).dom)
    assert found is not None
    return int(found[1])


class Elements(HTMLParser):
    """All elements of a page, with their attributes and the text in them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[int, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        last = len(self.found) - 1
        self.texts[last] = self.texts.get(last, "") + data

    def named(self, *tags: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.found if tag in tags]

    def text_of(self, identity: str) -> str:
        (at,) = (i for i, (_, found) in enumerate(self.found) if found.get("id") == identity)
        return self.texts[at]

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers on the page by the field of the report that they are."""
        shown = (found for found in self.named("data") if "data-field" in found)
        return {str(found["data-field"]): float(found["value"] or "nan") for found in shown}


def value_at(report: object, path: str) -> object:
    for part in path.split("."):
        assert isinstance(report, dict | list)
        report = report[int(part)] if isinstance(report, list) else report[part]
    return report


def loaded(text: str) -> dict[str, object]:
    found = json.loads(text)
    assert isinstance(found, dict)
    return found
