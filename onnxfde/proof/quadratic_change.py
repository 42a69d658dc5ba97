"""How far two layers can be apart, with parabolas in place of lines.

    o′ − o = Σ_i w_i σ(h_i),   σ(t) ∈ q_i t² + a_i t + [low_i, high_i]
           ∈ zᵀ(Σ_i w_i q_i u_i u_iᵀ)z + (Σ_i w_i a_i u_i)·z + Σ_i w_i [low_i, high_i]

As for squares, the quadratic form is bounded as one. If the layers were fitted to each other their
quadratic parts nearly cancel, and a parabola is far closer to an activation than a line.
"""

from __future__ import annotations

import numpy as np

from onnxfde.neurons.intervals import Interval, gamma
from onnxfde.numbers import FloatArray
from onnxfde.proof.affine_bounds import OUTWARD, Map, linear
from onnxfde.proof.difference_forms import FEW_STEPS, Form, PairedLayer, as_row, chosen, row
from onnxfde.proof.hidden_functions import HiddenFunction
from onnxfde.proof.layer_bounds import Centred, form_work, gathered, quadratic_forms
from onnxfde.proof.line_bounds import BoolArray, Parabolas, parabolas_around

MOST_QUADRATIC_WORK = 4e9
"""Operations that the quadratic forms may take: a fraction of a second at 1e10 per second, as for
certificates that nobody asked for. Chosen; not tuned."""
MOST_QUADRATIC_ENTRIES = 4_000_000
"""Entries of the forms that are written out at once, 32 MB in float64. Chosen; not tuned."""


def quadratic_change(
    form: Form,
    layer: PairedLayer,
    functions: tuple[HiddenFunction, HiddenFunction],
    maps: tuple[Map, Map],
    x: Interval,
) -> Interval | None:
    """The range of a form in the neurons of two layers over a box; None if it takes too long."""
    inputs, count = len(x.low), sum(len(f.weight) for f in maps)
    if form_work(inputs, count, len(form.old)) > MOST_QUADRATIC_WORK:
        return None
    alone = (layer.pairs.factor == 0) & (layer.gain == 0)
    old, new = (
        spelled_parabolas(f, neurons.hidden)
        for f, neurons in zip(functions, (layer.before, layer.after), strict=True)
    )
    weight = form.new + layer.gathered(form.old * layer.gain)
    squares = np.hstack([form.old * np.where(alone, old.bend, 0.0), weight * new.bend])
    own = np.where(alone, old.slope, layer.own)
    lines = np.hstack([form.old * own, weight * new.slope + layer.gathered(form.old * layer.tilt)])
    rest = form.rest + row(linear(form.old, as_row(chosen(alone, old.rest, layer.rest))))
    rest = rest + row(linear(weight, as_row(new.rest)))
    sizes = [f.magnitude(x.size[None])[0] for f in maps]
    terms = [
        neurons.made.size + np.abs(p.bend) * size**2 + np.abs(p.slope) * size
        for neurons, p, size in zip((layer.before, layer.after), (old, new), sizes, strict=True)
    ]
    rounding = np.abs(form.old) @ old_sizes(layer, alone, terms, sizes)
    rounding = rounding + np.abs(form.new) @ terms[1]
    steps = count + inputs + layer.steps + 2 * max(f.steps for f in maps) + FEW_STEPS
    rest = rest.widened(2 * gamma(steps) * OUTWARD * rounding)
    return rest + form_ranges(squares, lines, maps, x)


def old_sizes(
    layer: PairedLayer, alone: BoolArray, terms: list[FloatArray], sizes: list[FloatArray]
) -> FloatArray:
    """All terms of each neuron of the original on absolute values."""
    partner = layer.pairs.partner
    theirs = [a[partner] if len(a) else np.zeros(len(partner)) for a in (terms[1], sizes[1])]
    found = np.where(alone, terms[0], np.abs(layer.gain) * theirs[0])
    return found + layer.size + np.abs(layer.own) * sizes[0] + np.abs(layer.tilt) * theirs[1]


def spelled_parabolas(function: HiddenFunction, hidden: Interval) -> Parabolas:
    """Parabolas around what the nodes of a function compute."""
    found = parabolas_around(function.curve, hidden)
    off = function.deviation(hidden)
    rest = found.rest.widened(off) if off else found.rest
    return Parabolas(found.bend, found.slope, rest)


def form_ranges(
    squares: FloatArray, lines: FloatArray, maps: tuple[Map, Map], x: Interval
) -> Interval:
    """The range of Σ_i (squares_i·h_i² + lines_i·h_i) over a box, for each row of both."""
    first = Map(np.vstack([f.weight for f in maps]), np.concatenate([f.bias for f in maps]))
    rows = np.column_stack([first.weight, first.bias])
    width, count = rows.shape[1], len(squares)
    step = max(1, MOST_QUADRATIC_ENTRIES // (width * max(width, len(rows))))
    found = []
    for part in (slice(i, i + step) for i in range(0, count, step)):
        q = quadratic_forms((first, Map(squares, np.zeros(count))), part)
        half = lines[part] @ rows / 2
        q[:, -1, :] += half
        q[:, :, -1] += half
        found.append(Centred(q, as_row(x)).range())
    return row(gathered(found))
