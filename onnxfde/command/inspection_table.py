"""What `inspect` prints: one row per layer and one for its bounds, then remarks and refusals."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console

from onnxfde.command.tables import UNKNOWN, Grid, show_first_that_fits
from onnxfde.command.terminal import console, print_line
from onnxfde.graph.match import Refusal
from onnxfde.inspection import Inspection, LayerView

AT_LEAST = "  at least"
"""The first cell of the row with a layer's lower bounds."""


def show_inspection(found: Inspection, seconds: Mapping[str, float]) -> None:
    """Print the layers, how many neurons merging would leave, what was refused, and times."""
    out = console()
    if found.layers:
        show_first_that_fits(
            out,
            [inspection_grid(found.layers, parameters=True)],
            [inspection_grid(found.layers, parameters=False)],
        )
        print_line(
            out,
            "Neurons left by merging, by ε (the allowed change). optimize usually leaves fewer, "
            "but no method can go below 'at least'.",
        )
    for layer in found.layers:
        if layer.remark:
            print_line(out, f"{layer.name}: {layer.remark}")
    show_refusals(out, found.refused)
    if found.layers and found.other_activations:
        others = ", ".join(f"{n} × {op}" for op, n in found.other_activations.items())
        print_line(out, f"left alone  activations that are not squares: {others}")
    for fold in found.folds:
        size = f"{fold.parameters_before:,} → {fold.parameters_after:,} parameters"
        print_line(out, f"can fold    {fold.first} into {fold.second}: {size}, without loss")
    if found.nothing:
        print_line(out, f"No layer found: {found.nothing}.")
    show_times(out, seconds)


def inspection_grid(layers: tuple[LayerView, ...], parameters: bool) -> Grid:
    """Two rows per layer, neurons left and their lower bounds, with one column per ε."""
    shown = [eps for eps in layers[0].neurons_at if eps > 0]
    sizes = ("shape", "parameters") if parameters else ("shape",)
    rows = []
    for layer in layers:
        shape = f"{layer.inputs}-{layer.neurons}-{layer.outputs}"
        size = (shape, f"{layer.parameters:,}") if parameters else (shape,)
        left = (f"{layer.neurons_at[eps]:,}" for eps in shown)
        rows.append((layer.name, *size, f"{layer.lossless:,}", *left))
        fewest = [layer.fewest_at.get(eps, 0) for eps in (0.0, *shown)]
        if any(fewest):
            bounds = (f"{count:,}" if count else UNKNOWN for count in fewest)
            rows.append((AT_LEAST, *("" for _ in sizes), *bounds))
    return Grid(("layer", *sizes, "no loss", *(f"ε {eps:g}" for eps in shown)), [rows])


def show_refusals(out: Console, refused: tuple[Refusal, ...]) -> None:
    """Print every refusal with its reason."""
    for refusal in refused:
        print_line(out, f"left alone  {refusal.node}: {refusal.reason}")


def show_times(out: Console, seconds: Mapping[str, float]) -> None:
    """Print how long each stage took, if anything is known about that."""
    if seconds:
        print_line(out, "time: " + ", ".join(f"{stage} {s:.3f} s" for stage, s in seconds.items()))
