"""Lines and pages of text, printed with Debian's fonts and spoiled as a bad camera would.

Texts are those of manual pages: the names of `Print` say from which packages. Lines to judge on
have other texts, and half of them fonts that no line to fit to has.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from benchmarks.real.packages import from_debian
from onnxfde.numbers import Array

HAN = re.compile("[一-鿿，。、；：（）《》“”！？0-9A-Za-z]{4,}")
"""Chinese text, with what stands between."""
WORDS = re.compile("[!-~]+")
ESCAPE = re.compile(r"\\f(\(..|.)|\\s[-+]?\d|\\&")
"""What manual pages say about fonts and sizes within a line."""
SEEN = {
    "zh": ("fonts-noto-cjk/NotoSansCJK-Regular.ttc", "fonts-noto-cjk/NotoSansCJK-Bold.ttc",
           "fonts-wqy-zenhei/wqy-zenhei.ttc", "fonts-arphic-uming/uming.ttc"),
    "en": ("fonts-dejavu-core/DejaVuSans.ttf", "fonts-dejavu-core/DejaVuSerif.ttf",
           "fonts-liberation2/LiberationSans-Regular.ttf",
           "fonts-liberation2/LiberationSerif-Regular.ttf",
           "fonts-liberation2/LiberationMono-Regular.ttf",
           "fonts-freefont-ttf/FreeSerifBold.ttf", "fonts-lato/Lato-Regular.ttf",
           "fonts-open-sans/OpenSans-Semibold.ttf", "fonts-hack/Hack-Regular.ttf",
           "fonts-inconsolata/Inconsolata.otf"),
}  # fmt: skip
"""Fonts of the lines to fit to, by language."""
UNSEEN = {
    "zh": ("fonts-noto-cjk/NotoSerifCJK-Regular.ttc", "fonts-wqy-microhei/wqy-microhei.ttc",
           "fonts-arphic-ukai/ukai.ttc"),
    "en": ("fonts-crosextra-carlito/Carlito-Italic.ttf", "fonts-cantarell/Cantarell-Bold.otf",
           "fonts-roboto-unhinted/Roboto-Light.ttf", "fonts-linuxlibertine/LinLibertine_R.otf",
           "fonts-ebgaramond/EBGaramond12-Regular.otf", "fonts-comfortaa/Comfortaa-Regular.ttf"),
}  # fmt: skip
"""Fonts that only lines to judge on have."""
SIMPLIFIED = 2
"""Which of the fonts in a file of Noto is that of simplified Chinese."""
LENGTHS = {"zh": (5, 14), "en": (10, 36)}
"""Characters of a line, least and most."""
SAMPLE = 50
"""Characters by which the length of a line is guessed."""
SHORTEST = {"zh": 60, "en": 200}
"""Characters that a text has at least."""


@dataclass(frozen=True)
class Print:
    """What is printed: where texts are from, and fonts by language."""

    seed: int
    texts: dict[str, tuple[str, ...]]
    """Folders of manual pages by language."""
    fonts: tuple[dict[str, tuple[str, ...]], ...]


TO_FIT = Print(
    0, {"en": ("manpages-dev",), "zh": ("manpages-zh/usr/share/man/zh_CN/man1",)}, (SEEN,)
)
TO_JUDGE = Print(
    1,
    {"en": ("git-man", "manpages"),
     "zh": tuple(f"manpages-zh/usr/share/man/zh_CN/man{n}" for n in (2, 3, 5, 7, 8))},
    (SEEN, UNSEEN),
)  # fmt: skip


def page_texts(folder: Path, place: str) -> Iterator[str]:
    """The running text of every manual page of a folder of a package."""
    name, _, part = place.partition("/")
    for path in sorted((from_debian(name, folder) / part).rglob("*.gz")):
        lines = gzip.decompress(path.read_bytes()).decode(errors="replace").splitlines()
        plain = (ESCAPE.sub("", line).replace("\\-", "-") for line in lines if line[:1] not in ".'")
        yield " ".join(line.strip() for line in plain if "\\" not in line and "�" not in line)


@cache
def texts(folder: Path, print_of: int, language: str) -> tuple[str, ...]:
    """Texts in a language, of one of the two kinds of print."""
    kind = (TO_FIT, TO_JUDGE)[print_of]
    every = (text for place in kind.texts[language] for text in page_texts(folder, place))
    runs = (" ".join((HAN if language == "zh" else WORDS).findall(text)) for text in every)
    return tuple(run for run in runs if len(run) >= SHORTEST[language])


@cache
def font(folder: Path, name: str, size: int) -> ImageFont.FreeTypeFont:
    """A font by package and file."""
    package, file = name.split("/")
    (path, *_) = sorted(from_debian(package, folder).rglob(file))
    return ImageFont.truetype(path, size, index=SIMPLIFIED if "CJK" in file else 0)


def chosen_font(
    rng: np.random.Generator, folder: Path, kind: Print, language: str, size: int
) -> ImageFont.FreeTypeFont:
    """One of the fonts; where there are two sets of them, of either as often."""
    names = kind.fonts[rng.integers(len(kind.fonts))][language]
    return font(folder, names[rng.integers(len(names))], size)


def words_of(
    rng: np.random.Generator, folder: Path, kind: Print, language: str, length: int
) -> str:
    """About so many characters from somewhere in a text."""
    every = texts(folder, kind.seed, language)
    text = every[rng.integers(len(every))]
    start = int(rng.integers(max(len(text) - length, 1)))
    if language == "zh":
        return text[start:].replace(" ", "")[:length]
    start = text.find(" ", start) + 1
    return text[start : start + length].rsplit(" ", 1)[0]


def inks(rng: np.random.Generator, contrast: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Colours of paper and ink, so far apart; one time in four the ink is lighter."""
    middle = rng.uniform(110, 145)
    paper, ink = (middle + sign * 110 * contrast + rng.uniform(-12, 12, 3) for sign in (1, -1))
    pair = (paper, ink) if rng.random() < 0.75 else (ink, paper)
    first, second = (tuple(int(v) for v in np.clip(c, 0, 255)) for c in pair)
    return first, second


def spoiled(rng: np.random.Generator, picture: Image.Image, strength: float) -> Image.Image:
    """Fewer dots, blur, noise and JPEG, each of a random amount up to one of this strength."""
    width, height = picture.size
    less = 1 + strength * rng.uniform(0, 1.2)
    small = picture.resize((max(int(width / less), 1), max(int(height / less), 1)))
    blurred = small.resize((width, height), Image.Resampling.BICUBIC).filter(
        ImageFilter.GaussianBlur(strength * rng.uniform(0, 1.2))
    )
    noise = rng.normal(0, strength * rng.uniform(0, 22), (height, width, 3))
    noisy = np.clip(np.asarray(blurred, np.float64) + noise, 0, 255).astype(np.uint8)
    packed = BytesIO()
    Image.fromarray(noisy).save(packed, "JPEG", quality=int(rng.uniform(25, 90)))
    return Image.open(packed).convert("RGB")


def line(
    rng: np.random.Generator, folder: Path, kind: Print, height: int, strength: float
) -> tuple[Image.Image, str]:
    """A picture of a line of text, a little turned, and its text."""
    language = ("zh", "en")[rng.integers(2)]
    text = words_of(rng, folder, kind, language, int(rng.integers(*LENGTHS[language])))
    if not text.strip():
        return line(rng, folder, kind, height, strength)
    letters = chosen_font(rng, folder, kind, language, 40)
    paper, ink = inks(rng, rng.uniform(0.25, 1))
    left, top, right, bottom = letters.getbbox(text)
    margins = rng.integers(2, 9, 4)
    size = (int(right - left + margins[:2].sum()), int(bottom - top + margins[2:].sum()))
    picture = Image.new("RGB", size, paper)
    ImageDraw.Draw(picture).text((margins[0] - left, margins[2] - top), text, ink, letters)
    turned = picture.rotate(
        rng.uniform(-1.5, 1.5), Image.Resampling.BICUBIC, expand=True, fillcolor=paper
    )
    width = max(round(turned.width * height / turned.height), 8)
    return spoiled(rng, turned.resize((width, height), Image.Resampling.BICUBIC), strength), text


def page(
    rng: np.random.Generator, folder: Path, kind: Print, size: tuple[int, int], strength: float
) -> Image.Image:
    """A picture of a page: a title, paragraphs in one or two columns, perhaps boxes."""
    language = ("zh", "en")[rng.integers(2)]
    paper, ink = inks(rng, rng.uniform(0.4, 1))
    picture = Image.new("RGB", size, paper)
    draw, width, height = ImageDraw.Draw(picture), *size
    columns, margin = int(rng.integers(1, 3)), int(width * rng.uniform(0.04, 0.14))
    body, top = int(rng.integers(11, 26)), margin
    title = chosen_font(rng, folder, kind, language, int(body * rng.uniform(1.2, 2.4)))
    if rng.random() < 0.7:
        draw.text((margin, top), words_of(rng, folder, kind, language, 24), ink, title)
        top += 2 * int(title.size)
    letters = chosen_font(rng, folder, kind, language, body)
    wide = (width - margin * (columns + 1)) // columns
    for column in range(columns):
        left, y = margin + column * (wide + margin), top
        while y < height - margin - 2 * body:
            y = paragraph(rng, draw, words_of(rng, folder, kind, language, 400), letters, ink,
                          (left, y, wide, height - margin))  # fmt: skip
    turned = picture.rotate(rng.uniform(-4, 4), Image.Resampling.BICUBIC, fillcolor=paper)
    return spoiled(rng, turned, strength)


def paragraph(
    rng: np.random.Generator,
    draw: ImageDraw.ImageDraw,
    text: str,
    letters: ImageFont.FreeTypeFont,
    ink: tuple[int, ...],
    place: tuple[int, int, int, int],
) -> int:
    """Draw a few lines, or an empty box, at (left, top, width, bottom); where the next begins."""
    left, top, wide, bottom = place
    step = int(letters.size * rng.uniform(1.2, 1.7))
    if rng.random() < 0.1:
        low = min(top + int(rng.integers(3, 9)) * step, bottom)
        draw.rectangle((left, top, left + wide, low), outline=ink, width=2)
        return low + step
    for _ in range(int(rng.integers(1, 8))):
        if top + step > bottom:
            break
        start = text[:SAMPLE]
        fitting = max(int(len(start) * wide / max(letters.getlength(start), 1)) - 1, 1)
        draw.text((left, top), text[:fitting], ink, letters)
        text, top = text[fitting:] or text, top + step
    return top + int(step * rng.uniform(0.3, 1.2))


def fitted(picture: Image.Image, height: int, width: int) -> tuple[Array, int]:
    """A picture as bytes of this size, and how wide it is in them: squeezed if it is too long."""
    wide = max(min(round(picture.width * height / picture.height), width), 1)
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, :wide] = np.asarray(picture.resize((wide, height), Image.Resampling.BILINEAR))
    return pixels, wide


def normalised(pixels: Array, wide: Array) -> Array:
    """Lines as PaddleOCR's networks take them: (x / 255 − 0.5) / 0.5, blue first, zeros behind."""
    x = (pixels[..., ::-1].transpose(0, 3, 1, 2).astype(np.float32) / 255 - 0.5) / 0.5
    empty = np.arange(x.shape[3]) >= wide[:, None]
    return np.where(empty[:, None, None, :], np.float32(0), x)
