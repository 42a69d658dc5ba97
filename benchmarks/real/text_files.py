"""magika: what kind of file bytes are from; real files out of Debian packages.

inputs   1,024 bytes after leading blanks, 1,024 before trailing blanks, 256 where there are none
score    share of the files whose extension names the kind that the network finds likeliest

Files to judge are from packages that the tool is given nothing of.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.real.packages import from_debian, from_pypi, store_beside
from benchmarks.real.subject import Material, Run, Score, Subject
from onnxfde.numbers import Array

PACKAGE = "magika==1.0.3"
GIVEN = (
    "autoconf-archive cmake-data coreutils docbook-xsl elementary-xfce-icon-theme elpa-magit "
    "fonts-dejavu-core gnuplot-doc golang-golang-x-net-dev libasio-dev libcommons-io-java "
    "libglib2.0-dev libjs-jquery-ui libmojolicious-perl librust-serde-dev libssl3 libxml2-doc "
    "lua-penlight manpages-dev node-lodash octave-signal php-symfony-console postgresql-15 "
    "python3-django python3-docutils ruby-nokogiri sound-theme-freedesktop tcllib "
    "texlive-latex-base"
)
JUDGED = (
    "asterisk-core-sounds-en-wav bash bwidget elpa-markdown-mode extra-cmake-modules "
    "fonts-liberation gettext golang-github-spf13-cobra-dev iso-codes libcommons-lang3-java "
    "libcurl4 libcurl4-doc libdancer2-perl libgtk-3-dev libjs-bootstrap libjs-leaflet "
    "libjs-openlayers librange-v3-dev librust-regex-dev lua-socket manpages node-express "
    "node-typescript octave-control php-monolog python3-babel python3-djangorestframework "
    "python3-sphinx ruby-sinatra shared-mime-info sqlite3-doc tango-icon-theme "
    "texlive-latex-recommended"
)
KINDS = {
    ".c": "c", ".cmake": "cmake", ".cpp": "cpp", ".css": "css", ".el": "lisp", ".gif": "gif",
    ".go": "go", ".gz": "gzip", ".h": "c", ".hpp": "cpp", ".html": "html", ".jar": "jar",
    ".jpg": "jpeg", ".js": "javascript", ".json": "json", ".lua": "lua", ".m": "matlab",
    ".m4": "m4", ".md": "markdown", ".oga": "ogg", ".pdf": "pdf", ".php": "php", ".pl": "perl",
    ".pm": "perl", ".png": "png", ".po": "po", ".py": "python", ".rb": "ruby", ".rs": "rust",
    ".rst": "rst", ".so": "elf", ".sql": "sql", ".sty": "latex", ".svg": "svg", ".tcl": "tcl",
    ".tex": "latex", ".ts": "typescript", ".ttf": "ttf", ".wav": "wav", ".xml": "xml",
    ".xsl": "xml",
}  # fmt: skip
"""What the network calls the files whose names end so."""
EACH = 24
"""Files of one kind at most; chosen."""
ENDS = 1024
BLOCK = 4096
"""Blanks are looked for in so many bytes at each end."""
PADDING = 256
SHORTEST = 16
"""Bytes that a file has at least; the network is not asked about fewer than 8."""


def features(content: bytes) -> Array:
    """The 2,048 numbers that the network reads of a file."""
    found = np.full(2 * ENDS, PADDING, np.int32)
    head = content[:BLOCK].lstrip()[:ENDS]
    tail = content[-BLOCK:].rstrip()[-ENDS:]
    found[: len(head)] = np.frombuffer(head, np.uint8)
    found[2 * ENDS - len(tail) :] = np.frombuffer(tail, np.uint8)
    return found


def files_by_kind(roots: Sequence[Path]) -> dict[str, list[Path]]:
    """The files below folders whose names tell their kind, in the order of their names."""
    found: dict[str, list[Path]] = {}
    for root in roots:
        for path in sorted(root.rglob("*")):
            kind = KINDS.get(path.suffix)
            if kind and path.is_file() and not path.is_symlink():
                found.setdefault(kind, []).append(path)
    return found


def sampled(
    roots: Sequence[Path], each: int, rng: np.random.Generator
) -> Iterator[tuple[str, bytes]]:
    """Kinds and contents: so many files of each kind at most."""
    for kind, paths in sorted(files_by_kind(roots).items()):
        contents = (paths[i].read_bytes() for i in rng.permutation(len(paths)))
        long_enough = (content for content in contents if len(content.strip()) >= SHORTEST)
        for _, content in zip(range(each), long_enough, strict=False):
            yield kind, content


def rows_of(packages: str, labels: Sequence[str], store: Path) -> tuple[Array, Array]:
    """Inputs and labels of files out of Debian packages."""
    roots = [from_debian(package, store) for package in packages.split()]
    items = list(sampled(roots, EACH, np.random.default_rng(0)))
    inputs = np.stack([features(content) for _, content in items])
    return inputs, np.array([labels.index(kind) for kind, _ in items])


def prepare(folder: Path) -> Material:
    """The network as the package has it, files to fit to, and files to judge."""
    store = store_beside(folder)
    source = from_pypi(PACKAGE, store) / "magika/models/standard_v3_3"
    data, labelled = folder / "data.npz", folder / "labelled.npz"
    if not labelled.exists():
        labels = json.loads((source / "config.min.json").read_text())["target_labels_space"]
        bytes_, y = rows_of(JUDGED, labels, store)
        np.savez(folder / "judged.npz", bytes=bytes_, y=y)
        bytes_, y = rows_of(GIVEN, labels, store)
        np.savez(data, bytes=bytes_)
        np.savez(labelled, bytes=bytes_, y=y)
    return Material(source / "model.onnx", data, labelled=labelled)


def score(folder: Path, run: Run) -> Score:
    """The share of the files to judge whose kind is found."""
    with np.load(folder / "judged.npz") as rows:
        names = [int(run({"bytes": row[None]})[0].argmax()) for row in rows["bytes"]]
        right = np.array(names) == rows["y"]
    return Score(right.astype(np.float64), np.ones(len(right)))


SUBJECTS = (
    Subject(
        "magika",
        f"what kind of file bytes are from, 214 kinds ({PACKAGE})",
        "accuracy",
        "746 files of 35 kinds out of 29 Debian packages",
        "649 files of 32 kinds out of 33 other packages, by their extensions",
        prepare,
        score,
    ),
)
