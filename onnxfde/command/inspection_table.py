"""What `inspect` prints: one row per layer and one for its bounds, then remarks and refusals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Console

from onnxfde.command.tables import UNKNOWN, Grid, show_first_that_fits
from onnxfde.command.terminal import console, print_line
from onnxfde.graph.encrypted_cost import EncryptedCost
from onnxfde.graph.match import Refusal
from onnxfde.inspection import Inspection, LayerView
from onnxfde.passes.result import LayerChange

SIZES = (("activation", "shape", "parameters"), ("activation", "shape"), ("shape",))
"""The columns beside a layer's name; the first that fit the terminal are shown."""
MOST_NAMES = 4
"""Layers that a remark names; of more it says how many there are. Chosen: about a line."""
AT_LEAST = "  at least"
"""The first cell of the row with a layer's lower bounds."""


def show_inspection(found: Inspection, seconds: Mapping[str, float]) -> None:
    """Print the layers, how many neurons merging would leave, what was refused, and times."""
    out = console()
    if found.layers:
        show_first_that_fits(
            out,
            *([inspection_grid(found.layers, sizes)] for sizes in SIZES),
        )
        for line in explanations(found.layers):
            print_line(out, line)
    if found.inputs:
        print_line(out, f"inputs      {', '.join(map(str, found.inputs))}")
    show_remarks(out, found.layers)
    show_refusals(out, found.refused)
    if found.layers and found.other_activations:
        others = ", ".join(f"{n} × {op}" for op, n in found.other_activations.items())
        print_line(out, f"left alone  activations outside these layers: {others}")
    for fold in found.folds:
        size = f"{fold.parameters_before:,} → {fold.parameters_after:,} parameters"
        print_line(out, f"can fold    {fold.first} into {fold.second}: {size}, without loss")
    work = found.multiply_adds
    if found.layers:
        print_line(out, f"parameters  {found.parameters:,}")
        print_line(out, f"work        {'unknown' if work is None else f'{work:,}'} multiply-adds")
    if found.layers and found.encrypted:
        for line in encrypted_lines(found.encrypted):
            print_line(out, line)
    if found.nothing:
        print_line(out, f"No layer found: {found.nothing}.")
    show_times(out, seconds)


def encrypted_lines(cost: EncryptedCost) -> list[str]:
    """What a network costs encrypted and in a proof."""
    batch, vector = (
        f"{n.plain_multiplications:,} multiplications by weights, "
        f"{n.ciphertext_multiplications:,} of values"
        for n in (cost.batch, cost.vector)
    )
    lines = [
        f"encrypted   depth {cost.depth}; a sample per slot: {batch}",
        f"            a sample per ciphertext: {vector}, {cost.vector.rotations:,} rotations",
    ]
    if cost.constraints is not None:
        lines.append(f"proven      {cost.constraints:,} multiplication constraints")
    return lines


def explanations(layers: tuple[LayerView, ...]) -> list[str]:
    """What the counts of a table are."""
    kinds = {layer.kind for layer in layers}
    found = []
    if "dense" in kinds:
        bounded = any(any(layer.fewest_at.values()) for layer in layers)
        limit = ", but no method can go below 'at least'" if bounded else ""
        what = "Neurons left by merging, by ε (the change aimed at). optimize usually leaves fewer"
        found.append(f"{what}{limit}.")
    channels = [layer for layer in layers if layer.kind == "channels"]
    if any(None in layer.neurons_at.values() for layer in channels):
        found.append("How many channels an ε needs is measured on real inputs: give --data.")
    elif channels:
        found.append("Channels left by ε (the change aimed at), multiples of 8 in wide layers.")
    return found


def inspection_grid(layers: tuple[LayerView, ...], sizes: tuple[str, ...]) -> Grid:
    """Two rows per layer, neurons left and their lower bounds, with one column per ε."""
    known = {eps for layer in layers for eps, left in layer.neurons_at.items() if left is not None}
    shown = [eps for eps in layers[0].neurons_at if eps > 0 and eps in known]
    rows = []
    for layer in layers:
        cells = {
            "activation": layer.activation or UNKNOWN,
            "shape": f"{layer.inputs}-{layer.neurons}-{layer.outputs}",
            "parameters": f"{layer.parameters:,}",
        }
        size = (cells[column] for column in sizes)
        left = (UNKNOWN if (n := layer.neurons_at[eps]) is None else f"{n:,}" for eps in shown)
        rows.append((layer.name, *size, f"{layer.lossless:,}", *left))
        fewest = [layer.fewest_at.get(eps, 0) for eps in (0.0, *shown)]
        if any(fewest):
            bounds = (f"{count:,}" if count else UNKNOWN for count in fewest)
            rows.append((AT_LEAST, *("" for _ in sizes), *bounds))
    return Grid(("layer", *sizes, "no loss", *(f"ε {eps:g}" for eps in shown)), [rows])


def show_remarks(out: Console, layers: Iterable[LayerChange | LayerView]) -> None:
    """Print every remark once, with the names of the layers it is about."""
    found: dict[str, list[str]] = {}
    for layer in layers:
        if layer.remark:
            found.setdefault(layer.remark, []).append(layer.name)
    for remark, names in found.items():
        about = ", ".join(names) if len(names) <= MOST_NAMES else f"{len(names)} layers"
        print_line(out, f"{about}: {remark}")


def show_refusals(out: Console, refused: tuple[Refusal, ...]) -> None:
    """Print every refusal with its reason."""
    for refusal in refused:
        print_line(out, f"left alone  {refusal.node}: {refusal.reason}")


def show_times(out: Console, seconds: Mapping[str, float]) -> None:
    """Print how long each stage took, if anything is known about that."""
    if seconds:
        print_line(out, "time: " + ", ".join(f"{stage} {s:.3f} s" for stage, s in seconds.items()))
