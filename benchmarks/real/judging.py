"""A network beside its original: score, difference item by item, multiplications, bytes and time.

Intervals of shares of items are Wilson's, and of their differences Agresti and Min's. Those of
other ratios, perhaps of twenty photographs, are of items drawn again and again, the same for both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.common.found_cells import Result
from benchmarks.real.counting import multiplications
from benchmarks.real.subject import Run, Score, Subject
from onnxfde.estimates import Interval, paired_interval, share_interval
from onnxfde.numbers import Array, FloatArray

SECONDS = 6.0
"""How long two networks are timed; chosen."""
DRAWS = 2000
"""How often items are drawn again for an interval."""
MOST_PAIRS = 2000
"""Runs of each, at most; chosen."""


@dataclass
class Recorded:
    """A network in onnxruntime with one thread, and what it was first given."""

    path: Path
    feed: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Load the file."""
        from onnxruntime import InferenceSession, SessionOptions

        options = SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self.session = InferenceSession(str(self.path), options, providers=["CPUExecutionProvider"])

    def __call__(self, feed: Mapping[str, Array]) -> list[Array]:
        """The outputs for named inputs."""
        self.feed = self.feed or dict(feed)
        return [np.asarray(y) for y in self.session.run(None, dict(feed))]

    def sample(self, batch: int) -> dict[str, Array]:
        """The first row of what it was first given."""
        cut = batch > 1
        return {name: np.ascontiguousarray(x[:1]) if cut else x for name, x in self.feed.items()}


def judged(subject: Subject, folder: Path, original: Path, model: Path, timed: bool) -> Result:
    """All that is measured of one file."""
    run = Recorded(model)
    score = subject.score(folder, run)
    before = original_score(subject, folder, original, score if model == original else None)
    sample = run.sample(subject.batch)
    found: Result = {
        "score": estimated(score),
        "change": difference(score, before),
        "macs": multiplications(model, sample),
        "bytes": model.stat().st_size,
    }
    return found | ({"latency": latency(Recorded(original), run, sample)} if timed else {})


def original_score(subject: Subject, folder: Path, model: Path, known: Score | None) -> Score:
    """The score of the original, measured once."""
    file = folder / "original_score.npz"
    if known is not None or not file.exists():
        found = known or subject.score(folder, Recorded(model))
        np.savez(file, top=found.top, bottom=found.bottom)
    with np.load(file) as kept:
        return Score(kept["top"], kept["bottom"])


def yes_or_no(score: Score) -> bool:
    """Whether every item counts once and is either right or wrong."""
    return bool((score.bottom == 1).all() and np.isin(score.top, (0, 1)).all())


def estimated(score: Score) -> Result:
    """A score, and the interval in which it lies 19 times in 20."""
    found = score.estimate
    if yes_or_no(score):
        ends = share_interval(found.value, found.rows)
    else:
        ends = middle(drawn_again(score))
    return {"value": found.value, "interval": ends, "items": found.rows}


def difference(after: Score, before: Score) -> Result:
    """How much better the score is, and the interval, from the same items."""
    change = after.estimate.value - before.estimate.value
    if yes_or_no(after) and yes_or_no(before):
        lost = int(np.sum(before.top > after.top))
        won = int(np.sum(after.top > before.top))
        low, high = paired_interval(lost, won, len(after.top))
        return {"value": change, "interval": (-high, -low)}
    return {"value": change, "interval": middle(drawn_again(after) - drawn_again(before))}


def drawn_again(score: Score) -> FloatArray:
    """The score of items drawn from these with replacement, many times; the same each time."""
    count = len(score.top)
    rng = np.random.default_rng(0)
    times = rng.multinomial(count, np.full(count, 1 / count), size=DRAWS).astype(np.float64)
    return np.asarray(times @ score.top / (times @ score.bottom))


def middle(values: FloatArray) -> Interval:
    """Between which 95 % of values lie."""
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)


def latency(original: Run, model: Run, sample: Mapping[str, Array]) -> Result:
    """The time of one run as a share of the original's; both take turns."""
    for run in (original, model):
        run(sample)
    pairs, end = list[tuple[float, float]](), perf_counter() + SECONDS
    while len(pairs) < MOST_PAIRS and perf_counter() < end:
        turns = (original, model) if len(pairs) % 2 else (model, original)
        taken = {id(run): seconds_of(run, sample) for run in turns}
        pairs.append((taken[id(original)], taken[id(model)]))
    times = np.array(pairs)
    ratios = np.sort(times[:, 1] / times[:, 0])
    half = 1.96 * math.sqrt(len(ratios)) / 2
    low, high = (int(np.clip(len(ratios) / 2 + s * half, 0, len(ratios) - 1)) for s in (-1, 1))
    return {
        "ratio": float(np.median(ratios)),
        "interval": (float(ratios[low]), float(ratios[high])),
        "ms": float(1000 * np.median(times[:, 1])),
        "runs": len(pairs),
    }


def seconds_of(run: Run, sample: Mapping[str, Array]) -> float:
    """How long one run takes."""
    start = perf_counter()
    run(sample)
    return perf_counter() - start
