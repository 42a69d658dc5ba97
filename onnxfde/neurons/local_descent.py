"""Weights around an axis moved downhill, so that the network behind it gets what it got before.

    least   E ‖σ(chain(x̂) + other) − σ(y)‖²     x̂: what the producer reads now,
                                                y: what the original network makes here

over the parameters of the chain producer → inner → reader, by Adam on batches of images and random
crops of the output. Every array of parameters moves in units of its own size, and what is added in
units of what it is added to, so that factors between producer and reader make no difference. Images
that are held out choose the step that is kept, and the start wins if no step is better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxfde.deadline import Deadline
from onnxfde.neurons.conv_chain import ConvChain, Numbered
from onnxfde.neurons.map_operations import SHIFTS, Activated
from onnxfde.neurons.map_windows import MapRegion, Size, Span, images_first, images_last, part
from onnxfde.neurons.piecewise_activations import IDENTITY
from onnxfde.numbers import Array, Indices
from onnxfde.row_split import Mask, split_rows

CROP = 8
"""Rows and columns of a crop of the output; smaller maps are taken as a whole. On ResNet20 crops
are as good as maps of 32 × 32, at a twentieth of the cost."""
DESCENT_BATCH = 16
"""Images of a step. Tuned with the next one on ResNet20 at half of the channels: 32 images cost
twice as much and are no better, 8 images in twice as many steps cost more and are no better."""
RATE = 4e-2
"""How far the first step moves a number, relative to the size of its array: with 1e-2 the network
loses 1.4 points more."""
DESCENT_STEPS = 500
"""Steps. Measured on ResNet20 at half of the multiply-adds, three draws of 400 images: 250, 400 and
600 steps leave errors of 0.313, 0.308 and 0.303 on 100 other ones, and take 21, 27 and 30 s."""
SLOPE_MEMORY, SQUARE_MEMORY = 0.9, 0.99
"""How much of the mean slope, and of its mean square, is left after a step. Chosen: squares are
known after a hundred steps, as there are but a few hundred; not tuned."""
SMALLEST_SLOPE = 1e-8
"""Slopes below this, of a relative error by a relative change, move nothing."""
LOOK_STEPS = 50
"""Steps between two looks at the images that are held out. Chosen; not tuned."""
LOOKED_CROPS = 4
"""Crops of all these images that are looked at. Chosen: a look costs about as much as three steps
of 32 images; not tuned."""
FEWEST_IMAGES = 8
"""Fewer images are not used: what one of them says is no judgement of the others. Chosen."""
NO_ACTIVATION = Activated(IDENTITY)
"""Nothing stands behind the sum."""
NO_HURRY = Deadline()
"""All steps are made."""


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """A chain, and for each image the maps that it reads and those that it should make."""

    chain: ConvChain
    source: Array
    target: Array
    other: Array | None = None
    """What is added to the chain's result in the compressed network."""
    after: Activated = NO_ACTIVATION
    """The activation behind the sum."""
    fixed: tuple[int, ...] = ()
    """Places of operations whose parameters stay."""
    chosen_by: Mask | None = None
    """Which images choose the step; None: those of the usual split."""

    @property
    def free(self) -> list[int]:
        """Places of operations whose parameters may change."""
        return sorted({place for place, _ in self.chain.parameters} - set(self.fixed))


@dataclass(frozen=True, eq=False)
class Descended:
    """A chain with better parameters, or the one at the start."""

    chain: ConvChain
    before: float
    """‖error‖ of the start on images that were held out, relative to how far the target varies."""
    after: float
    """The same of the chain; not larger."""


def descent_fault(images: int, readers: int = 1) -> str | None:
    """Why nothing can be moved downhill."""
    if readers != 1:
        return f"{readers} nodes read its units, and a descent follows one"
    if images < FEWEST_IMAGES:
        return f"{images} images are too few to hold some out"
    return None


@np.errstate(over="ignore", invalid="ignore")
def descend(
    problem: Reconstruction,
    steps: int = DESCENT_STEPS,
    seed: int = 0,
    deadline: Deadline = NO_HURRY,
    rate: float = RATE,
) -> Descended:
    """The chain at the step of Adam that is best on images held out."""
    draws = _Draws(problem, np.random.default_rng(seed))
    judge = _Judge(problem, draws.looks())
    chain, best = _single(problem.chain), problem.chain
    before = least = judge.error(chain)
    adam = _Adam(_units(problem, chain, judge.looks[0]), rate, steps)
    for step in range(1, steps + 1):
        slopes = _gradients(problem, chain, draws.batch(), judge.variance)
        chain = adam.moved(chain, slopes)
        last = step == steps or deadline.passed
        if last or step % LOOK_STEPS == 0:
            error = judge.error(chain)
            if error < least:
                least, best = error, chain
        if last:
            break
    return Descended(best, before, least)


@dataclass(frozen=True, eq=False)
class _Crop:
    images: Indices
    region: MapRegion


class _Draws:
    """Batches of images, each with a region of the output."""

    def __init__(self, problem: Reconstruction, rng: np.random.Generator) -> None:
        held = problem.chosen_by
        if held is None or len(held) != len(problem.source):
            held = split_rows(len(problem.source)).choose
        self.held_out, self.taught = np.flatnonzero(held), np.flatnonzero(~held)
        self.rng, self.size = rng, problem.target.shape[2:]

    def batch(self) -> _Crop:
        images = self.rng.choice(self.taught, min(DESCENT_BATCH, len(self.taught)), replace=False)
        return _Crop(images, self._region())

    def looks(self) -> list[_Crop]:
        crops = LOOKED_CROPS if max(self.size) > CROP else 1
        return [_Crop(self.held_out, self._region()) for _ in range(crops)]

    def _region(self) -> MapRegion:
        return self._span(self.size[0]), self._span(self.size[1])

    def _span(self, length: int) -> Span:
        start = int(self.rng.integers(max(length - CROP, 0) + 1))
        return start, min(start + CROP, length)


@dataclass(frozen=True, eq=False)
class _At:
    """A chain at a crop: what it makes there, and what is wanted."""

    crop: ConvChain
    tapes: list[Any]
    made: Array
    wanted: Array


def _at(problem: Reconstruction, chain: ConvChain, drawn: _Crop) -> _At:
    crop, needed = chain.cropped(drawn.region, _size(problem.source))
    made, tapes = crop.forward(_maps(problem.source, drawn.images, needed))
    if problem.other is not None:
        made = made + _maps(problem.other, drawn.images, drawn.region)
    made, tape = problem.after.forward(made)
    wanted, _ = problem.after.forward(_maps(problem.target, drawn.images, drawn.region))
    return _At(crop, [*tapes, tape], made, wanted)


def _size(maps: Array) -> Size:
    return maps.shape[2], maps.shape[3]


def _maps(x: Array, images: Indices, region: MapRegion) -> Array:
    drawn = images_last(part(x, region)[images])
    return images_first(np.ascontiguousarray(drawn, np.float32))


class _Judge:
    """The error on images that are held out, relative to how far what is wanted varies."""

    def __init__(self, problem: Reconstruction, looks: list[_Crop]) -> None:
        self.problem, self.looks = problem, looks
        wanted = [_at(problem, _single(problem.chain), look).wanted for look in looks]
        centre = np.mean([maps.mean(axis=(0, 2, 3)) for maps in wanted], axis=0)[:, None, None]
        self.variance = float(np.mean([np.mean((maps - centre) ** 2) for maps in wanted])) or 1.0

    def error(self, chain: ConvChain) -> float:
        seen = [_at(self.problem, chain, look) for look in self.looks]
        squares = [float(np.mean((at.made - at.wanted) ** 2)) for at in seen]
        return math.sqrt(sum(squares) / len(squares) / self.variance)


def _gradients(
    problem: Reconstruction, chain: ConvChain, drawn: _Crop, variance: float
) -> Numbered:
    at = _at(problem, chain, drawn)
    slope = (at.made - at.wanted) * (2 / (variance * at.made.size))
    *tapes, last = at.tapes
    return at.crop.gradients(tapes, problem.after.backward(last, slope), problem.free)


def _single(chain: ConvChain) -> ConvChain:
    return chain.replaced({key: a.astype(np.float32) for key, a in chain.parameters.items()})


def _rms(a: Array) -> float:
    return math.sqrt(float(np.mean(np.square(a))))


def _units(problem: Reconstruction, chain: ConvChain, drawn: _Crop) -> dict[tuple[int, str], float]:
    """How large a change of each array counts as 1."""
    crop, needed = chain.cropped(drawn.region, _size(problem.source))
    x = _maps(problem.source, drawn.images, needed)
    found = {}
    for place, operation in enumerate(crop.operations):
        x, _ = operation.forward(x)
        for name, array in operation.parameters.items():
            found[place, name] = _rms(x if name in SHIFTS else array)
    return {(place, name): unit for (place, name), unit in found.items() if place in problem.free}


class _Adam:
    """Steps whose length falls as a cosine, in units of the parameters."""

    def __init__(self, units: dict[tuple[int, str], float], rate: float, steps: int) -> None:
        self.units, self.rate, self.steps, self.step = units, rate, steps, 0
        self.first: dict[tuple[int, str], Array] = {}
        self.second: dict[tuple[int, str], Array] = {}

    def moved(self, chain: ConvChain, gradients: Numbered) -> ConvChain:
        self.step += 1
        rate = self.rate * (1 + math.cos(math.pi * (self.step - 1) / self.steps)) / 2
        at = chain.parameters
        return chain.replaced(
            {
                key: at[key] - rate * unit * self._direction(key, gradients[key] * unit)
                for key, unit in self.units.items()
            }
        )

    def _direction(self, key: tuple[int, str], slope: Array) -> Array:
        first, second = self.first.get(key, 0 * slope), self.second.get(key, 0 * slope)
        self.first[key] = first = SLOPE_MEMORY * first + (1 - SLOPE_MEMORY) * slope
        self.second[key] = second = SQUARE_MEMORY * second + (1 - SQUARE_MEMORY) * slope**2
        mean = first / (1 - SLOPE_MEMORY**self.step)
        size = np.sqrt(second / (1 - SQUARE_MEMORY**self.step))
        return np.asarray(mean / (size + SMALLEST_SLOPE))
