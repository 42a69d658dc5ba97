"""What `inspect` prints: one row per layer, then remarks and refusals."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from onnxfde.command.terminal import console, print_line
from onnxfde.graph.match import Refusal
from onnxfde.inspection import Inspection, LayerView


def show_inspection(found: Inspection) -> None:
    """Print the layers, how many neurons merging would leave, and what was refused."""
    out = console()
    if found.layers:
        out.print(inspection_table(found.layers))
        print_line(
            out, "neurons left by merging blocks; optimize usually gets closer to the bound (≥)"
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


def inspection_table(layers: tuple[LayerView, ...]) -> Table:
    """One row per layer, one column per ε."""
    shown = [eps for eps in layers[0].neurons_at if eps > 0]
    columns = (f"ε {eps:g}" for eps in shown)
    table = Table("layer", "shape", "parameters", "neurons", "lossless", *columns)
    for layer in layers:
        table.add_row(
            Text(layer.name),
            f"{layer.inputs}-{layer.neurons}-{layer.outputs}",
            f"{layer.parameters:,}",
            f"{layer.neurons:,}",
            f"{layer.lossless:,}",
            *(at_least(layer.neurons_at[eps], layer.fewest_at[eps]) for eps in shown),
        )
    return table


def at_least(count: int, fewest: int) -> str:
    """A number of neurons, with its lower bound if there is one."""
    return f"{count:,} (≥ {fewest:,})" if fewest else f"{count:,}"


def show_refusals(out: Console, refused: tuple[Refusal, ...]) -> None:
    """Print every refusal with its reason."""
    for refusal in refused:
        print_line(out, f"left alone  {refusal.node}: {refusal.reason}")
