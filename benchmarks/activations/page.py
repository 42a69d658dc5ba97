"""The page of results: promises, then one table per network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mean

from benchmarks.activations import autoencoder
from benchmarks.activations.bars import BAR_HEADER, bar_rows
from benchmarks.activations.cells import LENET, SHARES, Cell, compared
from benchmarks.activations.dense_tasks import DENSE
from benchmarks.activations.methods import METHODS
from benchmarks.common import table
from benchmarks.common.found_cells import Found, Result

NOTE = """Networks are trained in torch and exported with `torch.onnx`. Nothing is retrained after
merging or pruning. Every figure is measured on test rows, which no method has seen; inputs to fit
to are unlabelled training inputs (digits has 1,437 and Abalone 2,923, fewer than 4,000). Pixels lie
in [0, 1]. In brackets: ‖y′ − y‖ / ‖y − mean y‖ of the logits or outputs. "CPU s": the longest of
the line's runs; for onnxfde it is the whole command, with one thread.

Torch-Pruning (magnitude importance) and both methods without a tool, structured magnitude pruning
and interpolative decomposition (Chee and others, 2022), work on the torch network before its
export. onnxsim 0.8.1 can prune: `apply_structured_pruning` ranks neurons by the length of
their incoming weights, `apply_structured_wanda_pruning` also by how large their activations are.
onnxslim has no pruning."""


def groups() -> dict[str, tuple[str, ...]]:
    """The networks of each table: those that differ only in the seed are averaged."""
    alone = {net: (net,) for net in DENSE if net not in LENET}
    return {"lenet": LENET, **alone, "vit": ("vit",)}


def text_of(results: list[Result]) -> str:
    """One cell of a table."""
    if any("failed" in result for result in results):
        return "failed"
    score, error = (mean(result[name] for result in results) for name in ("score", "error"))
    shown = f"{score:.2%}" if is_accuracy(mean(r["base"] for r in results)) else f"{score:.3g}"
    return f"{shown} ({error:.3f})"


def is_accuracy(base: float) -> bool:
    """Whether an original's score is a share of rows that are right; else it is a squared error."""
    return base > 0.05


def left_percent(found: Found, nets: Iterable[str], size: str) -> str:
    """How many parameters a share of the neurons leaves: all methods keep as many neurons."""
    results = [found.get(Cell(net, "structured magnitude", size)) for net in nets]
    shares = [100 * r["parameters"] / r["all_parameters"] for r in results if r]
    return f"{mean(shares):.1f}" if shares else "–"


def network_rows(found: Found, nets: tuple[str, ...]) -> Iterator[list[str]]:
    """The parameters left, then one line per method that has been run."""
    yield ["parameters left, %", *(left_percent(found, nets, size) for size in SHARES), ""]
    for method in filter(compared, METHODS):
        columns, cpu = [], [0.0]
        for size in SHARES:
            results = [r for net in nets if (r := found.get(Cell(net, method, size)))]
            columns.append(text_of(results) if len(results) == len(nets) else "–")
            cpu += [result["cpu"] for result in results]
        if set(columns) != {"–"}:
            yield [method, *columns, f"{max(cpu):.1f}"]


def base_text(found: Found, nets: tuple[str, ...]) -> str:
    """How good the original is."""
    known = [r["base"] for key, r in found.results.items() if key.split(" |")[0] in nets
             and "base" in r]  # fmt: skip
    if not known:
        return "not run yet"
    base = mean(known)
    return f"{base:.2%}" if is_accuracy(base) else f"MSE {base:.4g}"


def command_rows(found: Found) -> Iterator[tuple[str, str]]:
    """What was run for each method, for one network."""
    for method in METHODS:
        for key, result in found.results.items():
            if key.split(" | ")[1] == method and "command" in result:
                yield method, f"`{result['command']}`"
                break


def sections(found: Found) -> Iterator[table.Section]:
    """All tables."""
    yield table.Section("Promises", BAR_HEADER, bar_rows(found))
    for name, nets in groups().items():
        rows = list(network_rows(found, nets))
        if len(rows) > 1:
            heading = f"{name}, originally {base_text(found, nets)}"
            header = " | ".join(["neurons left", *SHARES, "CPU s"])
            yield table.Section(heading, header, rows)
    yield from autoencoder.sections(found)
    yield table.Section("Commands", "method | command", command_rows(found))


def write_page(found: Found, path: Path) -> None:
    """Write the page."""
    name = "activations"
    path.write_text(table.text(name, "Any activation: error against size", sections(found), NOTE))
