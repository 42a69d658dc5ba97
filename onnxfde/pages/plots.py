"""Small plots as SVG, made of numbers and texts; colours are those of the page they stand in.

    value → place on the page:   x: left to right, y: bottom to top, both linear

A plotting library draws more, but importing matplotlib takes most of the time again that importing
all of onnxfde takes, and this module next to none (benchmarks/sweep.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from onnxfde.pages.markup import Markup, fill_in, joined_markup

WIDTH, HEIGHT = 360, 220
LEFT, RIGHT, TOP, BOTTOM = 46, 20, 14, 40
"""Margins for the numbers of the axes."""
MOST_TICKS = 6
"""Numbers on an axis."""

PlotPoint = tuple[float, float]


@dataclass(frozen=True)
class Axes:
    """Where values lie in a plot."""

    x_range: PlotPoint
    y_range: PlotPoint
    x_title: str
    y_title: str
    percent_x: bool = False
    percent_y: bool = True
    """Whether numbers are shown in percent."""

    def x(self, value: float) -> float:
        """Where a value is, from the left."""
        return LEFT + (WIDTH - LEFT - RIGHT) * share_of(value, self.x_range)

    def y(self, value: float) -> float:
        """Where a value is, from the top."""
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share_of(value, self.y_range))

    def path(self, points: Iterable[PlotPoint]) -> str:
        """A line through points."""
        return "M" + "L".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)

    def drawn(self) -> Markup:
        """The lines, numbers and titles of both axes."""
        ticks = [
            fill_in("plots.html", "x_tick", x=f"{self.x(v):.1f}", text=tick(v, self.percent_x))
            for v in ticks_of(*self.x_range)
        ]
        ticks += [
            fill_in("plots.html", "y_tick", y=f"{self.y(v):.1f}", text=tick(v, self.percent_y))
            for v in ticks_of(*self.y_range)
        ]
        titles = fill_in("plots.html", "titles", x=self.x_title, y=self.y_title)
        return joined_markup([*ticks, titles])


@dataclass(frozen=True)
class PlotLine:
    """A line through points, and the points as dots if they were measured."""

    points: Sequence[PlotPoint]
    kind: str = "curve"
    dots: bool = True


@dataclass(frozen=True)
class Plot:
    """Curves and single points."""

    title: str
    description: str
    axes: Axes
    curves: Sequence[PlotLine] = ()
    chosen: PlotPoint | None = None
    rows: Sequence[Markup] = field(default_factory=tuple)

    def drawn(self) -> Markup:
        """The plot."""
        parts = [self.axes.drawn(), *self.rows]
        for curve in self.curves:
            path = self.axes.path(curve.points)
            parts.append(fill_in("plots.html", "line", kind=curve.kind, path=path))
            if curve.dots:
                parts += [self.dot(point, "dot", 2.4) for point in curve.points]
        if self.chosen is not None:
            parts.append(self.dot(self.chosen, "chosen", 5.5))
        return svg_of(self.title, self.description, joined_markup(parts))

    def dot(self, point: PlotPoint, kind: str, radius: float) -> Markup:
        """A point."""
        x, y = self.axes.x(point[0]), self.axes.y(point[1])
        return fill_in("plots.html", "dot", kind=kind, x=f"{x:.1f}", y=f"{y:.1f}", radius=radius)


def histogram(
    title: str, description: str, axes: Axes, edges: Sequence[float], counts: Sequence[int]
) -> Markup:
    """Bars between edges."""
    bars = [
        fill_in(
            "plots.html",
            "bar",
            x=f"{axes.x(low) + 0.6:.1f}",
            y=f"{axes.y(count):.1f}",
            width=f"{max(axes.x(high) - axes.x(low) - 1.2, 0.8):.1f}",
            height=f"{axes.y(0) - axes.y(count):.1f}",
        )
        for low, high, count in zip(edges, edges[1:], counts, strict=False)
        if count
    ]
    return svg_of(title, description, joined_markup([axes.drawn(), *bars]))


def sparkline(title: str, points: Sequence[PlotPoint], highest: float) -> Markup:
    """A curve of shares without axes, as high and wide as a line of text."""
    axes = Axes((0.0, 1.0), (0.0, top_of([highest])), "", "")
    path = axes.path(points)
    return fill_in("plots.html", "spark", title=title, path=path, base=f"{axes.y(0):.1f}")


def svg_of(title: str, description: str, body: Markup, height: float = HEIGHT) -> Markup:
    """A picture with words for those who do not see it."""
    text = f"{title}. {description}"
    return fill_in("plots.html", "svg", width=WIDTH, height=f"{height:g}", text=text, body=body)


def share_of(value: float, limits: PlotPoint) -> float:
    """How far a value is between two others, cut off at both."""
    low, high = limits
    return min(max((value - low) / ((high - low) or 1.0), 0.0), 1.0)


def bounds_of(values: Iterable[float]) -> PlotPoint:
    """The smallest and the largest value."""
    found = list(values) or [0.0]
    return min(found), max(found)


def top_of(values: Iterable[float]) -> float:
    """A number above all values, so that a curve does not touch the edge."""
    return 1.08 * max((v for v in values if math.isfinite(v)), default=1.0) or 1.0


def ticks_of(low: float, high: float) -> list[float]:
    """Round numbers between two others.

    >>> ticks_of(0, 0.23)
    [0.0, 0.05, 0.1, 0.15, 0.2]
    """
    span = high - low
    if not (math.isfinite(span) and span > 0):
        return [low]
    rough = span / (MOST_TICKS - 1)
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * m for m in (1, 2, 2.5, 5, 10) if unit * m >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(step * i, 12) if step > 1e-9 else step * i for i in range(first, last + 1)]


def tick(value: float, percent: bool) -> str:
    """A number on an axis.

    >>> tick(0.05, True), tick(1500, False), tick(2.5e6, False)
    ('5 %', '1,500', '2.5M')
    """
    if percent:
        return f"{100 * value:.4g} %"
    for size, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            unit = 1e3 if name == "k" else size
            return f"{value / unit:.3g}{name}"
    return f"{value:,.0f}" if abs(value) >= 1 or value == 0 else f"{value:.2g}"
