"""Activations between two parallel lines or parabolas.

    σ(t) ∈ a·t (+ q·t²) + [low, high]      for all t of an interval

An interval is cut into pieces. On each of them σ(t) − a·t lies below the lines of steepest slope
through its ends, p upwards from the left and q downwards from the right, and so below the point
where these meet; from below it is bounded in the same way. Of a few slopes a, near that of the
chord, the one is taken that brings the two lines closest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnxfde.neurons.activation_curves import FUNCTION_STEPS, Curve
from onnxfde.neurons.intervals import UNIT, Interval
from onnxfde.numbers import FloatArray

BoolArray = npt.NDArray[np.bool_]

PIECES = 16
"""Pieces of an interval: the bound is then too large by about 1/PIECES² of itself. Chosen; not
tuned."""
FINE_PIECES = 64
"""The same for parabolas, which are far closer to smooth functions. Chosen; not tuned."""
TILTS = (0.0, 0.1, 0.25, -0.1, -0.25)
"""How far the slopes that are tried are from that of the chord towards the steepest (or the least
steep) slope. The chord is best for convex and concave functions; for Tanh on [−5, 5] a steeper line
brings the lines 20 % closer. Chosen; not tuned."""


@dataclass(frozen=True, eq=False)
class Lines:
    """σ(t) ∈ slope·t + rest, one for each neuron."""

    slope: FloatArray
    rest: Interval


@dataclass(frozen=True, eq=False)
class Parabolas:
    """σ(t) ∈ bend·t² + slope·t + rest, one for each neuron."""

    bend: FloatArray
    slope: FloatArray
    rest: Interval


@dataclass(frozen=True, eq=False)
class CutCurve:
    """A curve over pieces of intervals: its values at their ends and its slopes inside."""

    places: FloatArray
    values: Interval
    slopes: Interval
    inside: Interval
    """The range over each piece."""
    broken: BoolArray
    """Which pieces a jump may be in, so that their slopes say nothing."""

    @classmethod
    def of(cls, curve: Curve, x: Interval, count: int = PIECES) -> CutCurve:
        """The curve over each interval, cut into pieces and at kinks."""
        shares = np.linspace(0.0, 1.0, count + 1)[:, None]
        evenly = x.low + shares * (x.high - x.low)
        kinks = [np.broadcast_to(kink, x.shape) for kink in curve.kinks]
        places = np.sort(np.clip([*evenly, *kinks], x.low, x.high), axis=0)
        pieces = Interval(places[:-1], places[1:])
        broken = np.zeros(pieces.shape, dtype=bool)
        for place, _ in curve.jumps:
            broken |= (pieces.low <= place) & (pieces.high > place)
        values = curve.range(Interval.point(places))
        return cls(places, values, curve.slope(pieces), curve.range(pieces), broken)

    def beside(self, slope: FloatArray, bend: FloatArray | float = 0.0) -> Interval:
        """The range of σ(t) − slope·t − bend·t² over each interval."""
        pieces = Interval(self.places[:-1], self.places[1:])
        found = self.inside - parabola(slope, bend, pieces)
        closer = found.meet(self._between_slopes(slope, bend))
        found = Interval(
            np.where(self.broken, found.low, closer.low),
            np.where(self.broken, found.high, closer.high),
        )
        return Interval(found.low.min(axis=0), found.high.max(axis=0))

    def _between_slopes(self, slope: FloatArray, bend: FloatArray | float) -> Interval:
        gaps = self.values - parabola(slope, bend, Interval.point(self.places))
        length = np.diff(self.places, axis=0)
        steep = slope + 2 * bend * self.places
        rise = self.slopes.high - np.minimum(steep[:-1], steep[1:])
        fall = self.slopes.low - np.maximum(steep[:-1], steep[1:])
        high = summit(gaps.high[:-1], gaps.high[1:], rise, fall, length)
        low = -summit(-gaps.low[:-1], -gaps.low[1:], -fall, -rise, length)
        size = gaps.size[:-1] + gaps.size[1:] + (np.abs(rise) + np.abs(fall)) * length
        most = np.abs(slope) + 2 * np.abs(bend) * np.maximum(
            *np.abs((self.places[0], self.places[-1]))
        )
        return Interval(low, high).widened(FUNCTION_STEPS * UNIT * (size + most * length))


def parabola(slope: FloatArray, bend: FloatArray | float, x: Interval) -> Interval:
    """The range of slope·t + bend·t²."""
    line = Interval.point(np.broadcast_to(slope, x.shape)) * x
    return line + Interval.point(np.broadcast_to(bend, x.shape)) * x.squared()


def summit(
    first: FloatArray, last: FloatArray, rise: FloatArray, fall: FloatArray, length: FloatArray
) -> FloatArray:
    """The highest that a function gets between two values with slopes from `fall` to `rise`."""
    turns = (rise > 0) & (fall < 0)
    place = np.divide(
        last - first - fall * length, rise - fall, out=np.zeros_like(first), where=turns
    )
    top = first + rise * np.clip(place, 0.0, length)
    return np.where(turns, np.maximum(top, np.maximum(first, last)), np.maximum(first, last))


def lines_around(curve: Curve, x: Interval) -> Lines:
    """Two parallel lines around a curve, over each interval of a row."""
    cut = CutCurve.of(curve, x)
    width = x.high - x.low
    rise = cut.values.mid[-1] - cut.values.mid[0]
    chord = np.divide(rise, width, out=np.zeros_like(width), where=width > 0)
    least, most = cut.slopes.low.min(axis=0), cut.slopes.high.max(axis=0)
    chord = np.where(width > 0, np.clip(chord, least, most), 0.0)
    best, rest = chord, cut.beside(chord)
    for tilt in TILTS[1:]:
        slope = np.where(width > 0, chord + abs(tilt) * ((most if tilt > 0 else least) - chord), 0)
        found = cut.beside(slope)
        closer = found.high - found.low < rest.high - rest.low
        best = np.where(closer, slope, best)
        rest = Interval(
            np.where(closer, found.low, rest.low), np.where(closer, found.high, rest.high)
        )
    return Lines(best, rest)


def parabolas_around(curve: Curve, x: Interval) -> Parabolas:
    """Two parallel parabolas around a curve, from its first three Chebyshev coefficients."""
    angles = (np.arange(FINE_PIECES) + 0.5) * np.pi / FINE_PIECES
    middle, half = x.mid, x.rad
    values = curve.function(middle + half * np.cos(angles)[:, None])
    first, second = (np.mean(2 * values * np.cos(k * angles)[:, None], axis=0) for k in (1, 2))
    some = half > 0
    bend = np.divide(2 * second, half**2, out=np.zeros_like(half), where=some)
    slope = np.divide(first, half, out=np.zeros_like(half), where=some) - 2 * bend * middle
    return Parabolas(bend, slope, CutCurve.of(curve, x, FINE_PIECES).beside(slope, bend))
