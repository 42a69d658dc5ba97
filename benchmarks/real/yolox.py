"""YOLOX-nano, which finds objects in photographs: does it find what it found before?

centre = (xy + cell) · stride, size = exp(wh) · stride, score = objectness · likeliest class
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from benchmarks.common.folders import shared_file
from benchmarks.real.judging import Recorded
from benchmarks.real.scores import box_score, overlaps
from benchmarks.real.subject import Material, Run, Score, Subject
from onnxfde.numbers import Array, FloatArray

FIT = 40
"""Photographs to fit to; the other 20 are to judge on."""
SIDE, PADDING = 416, 114
STRIDES = (8, 16, 32)
LEAST_SCORE, MOST_SHARED = 0.3, 0.45
"""Boxes that count, and how much of a surer one they may share: as the network is used."""


def fed(path: Path) -> Array:
    """A photograph as the network takes it: blue first, 0 to 255, in the upper left corner."""
    from PIL import Image

    with Image.open(path) as opened:
        picture = opened.convert("RGB")
    times = min(SIDE / picture.height, SIDE / picture.width)
    width, height = int(picture.width * times), int(picture.height * times)
    small = np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR), np.float32)
    x = np.full((3, SIDE, SIDE), PADDING, np.float32)
    x[:, :height, :width] = small[..., ::-1].transpose(2, 0, 1)
    return x


def boxes(output: Array) -> FloatArray:
    """Boxes of one photograph: four corners, class and score, the surest first."""
    cells, strides = grid()
    centre = (output[:, :2] + cells) * strides
    half = np.exp(np.minimum(output[:, 2:4], 20)) * strides / 2
    chances = output[:, 4:5] * output[:, 5:]
    scores, kinds = chances.max(axis=1), chances.argmax(axis=1)
    every = np.column_stack([centre - half, centre + half, kinds, scores]).astype(np.float64)
    return distinct(every[scores >= LEAST_SCORE])


def grid() -> tuple[FloatArray, FloatArray]:
    """The cell of each row of the output, and its stride."""
    cells, strides = [], []
    for stride in STRIDES:
        count = SIDE // stride
        y, x = np.divmod(np.arange(count * count), count)
        cells.append(np.column_stack([x, y]))
        strides.append(np.full((count * count, 1), stride))
    return np.concatenate(cells).astype(np.float64), np.concatenate(strides).astype(np.float64)


def distinct(every: FloatArray) -> FloatArray:
    """The boxes that share little with a surer one."""
    left, kept = every[np.argsort(-every[:, 5], kind="stable")], []
    while len(left):
        kept.append(left[0])
        left = left[1:][overlaps(left[:1, :4], left[1:, :4])[0] <= MOST_SHARED]
    return np.array(kept).reshape(-1, 6)


def prepare(folder: Path) -> Material:
    """The network, and photographs as it takes them."""
    model, data, judged = folder / "original.onnx", folder / "fit.npz", folder / "judge.npz"
    if not judged.exists():
        shutil.copyfile(shared_file("models/yolox_nano.onnx"), model)
        x = np.stack([fed(path) for path in sorted(shared_file("data/coco60").glob("*.jpg"))])
        np.savez(data, images=x[:FIT])
        run = Recorded(model)
        outputs = np.concatenate([run({"images": row[None]})[0] for row in x[FIT:]])
        np.savez(judged, images=x[FIT:], outputs=outputs)
    return Material(model, data)


def score(folder: Path, run: Run) -> Score:
    """F1 of the boxes against the original's."""
    with np.load(folder / "judge.npz") as judged:
        x, wanted = judged["images"], judged["outputs"]
    found = [run({"images": row[None]})[0][0] for row in x]
    return box_score([boxes(y) for y in found], [boxes(y) for y in wanted])


SUBJECTS = (
    Subject(
        "yolox-nano",
        "YOLOX-nano, objects in photographs (shared folder), at 416×416",
        "F1 with the original's boxes",
        f"{FIT} photographs of COCO",
        "20 others",
        prepare,
        score,
    ),
)
