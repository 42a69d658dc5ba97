"""The page of results: promises, one table per network, times and commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev

from benchmarks.channels.bars import BAR_HEADER, bar_rows
from benchmarks.channels.cells import (
    ALIGNED,
    COMPARED,
    DEFAULT,
    EACH,
    HALF,
    MACS,
    METHOD_NAMES,
    NO_LOSS,
    OTHER_COUNTS,
    PEERS,
    USUAL,
    VARIED,
    Cell,
    draws_of,
)
from benchmarks.channels.deployed import DEPLOYED_CELLS
from benchmarks.channels.large import LARGE_CELLS
from benchmarks.channels.latency import LatencyCell, latency_cells
from benchmarks.channels.subjects import DETECTOR, RESNET8, RESNET20
from benchmarks.common import table
from benchmarks.common.found_cells import Found, Result
from onnxfde.command.bench_table import amount, seconds

NOTE = """Nothing is retrained, and no labels are used. Images to fit to are drawn three times from
CIFAR-10's images 0–999 (of the shared file), accuracy is measured on 1000–4999; for `vgg` and
`mobilenetv2`, which are trained here, they are the first 1,000 training images of FashionMNIST, and
its test images. "N% MACs": at most so many multiply-adds of the whole network; onnxfde chooses
which axis gives how much, the other methods take the same share of every one. "N% of each": the
same share everywhere. Cells with a standard deviation are means of the draws, the others the first
of them; in brackets the multiply-adds that are left, in percent. "CPU s": the longest of the line's
runs; for onnxfde it is the whole command with one thread. Channels are left in any number (`--align
1`), but for "align N" and with default options, which leave multiples of 8; the last table has the
commands.

`interpolative + refit` chooses channels by interpolative decomposition (Chee and others, 2022) and
then fits the k×k weights behind them to the same images as onnxfde's refit does. Torch-Pruning
(magnitude importance, no fine-tuning) works on a torch network with the file's weights, first for
the channels that onnxfde may merge, then for all but the outputs ("stream too"). onnxsim 0.8.1's
`apply_structured_pruning` and `apply_structured_wanda_pruning` remove channels from chains of
convolutions."""
LATENCY_HEADER = "network | machine | model | MACs left | batch 1 | batch 16"


def found_of(found: Found, net: str, method: str, size: str) -> list[Result]:
    """The results of all draws that were run."""
    cells = (Cell(net, method, size, draw) for draw in draws_of(method))
    return [result for cell in cells if (result := found.get(cell))]


def text_of(results: list[Result]) -> str:
    """One cell of a table."""
    if not results:
        return "–"
    if failed := [result["failed"] for result in results if "failed" in result]:
        return str(failed[0])
    scores = [100 * result["score"] for result in results]
    left = mean(100 * result["macs"] / result["all_macs"] for result in results)
    spread = f" ± {stdev(scores):.1f}" if len(scores) > 1 else ""
    return f"{mean(scores):.2f}{spread} ({left:.0f})"


Place = tuple[str, str]
"""A network and a size."""


def method_rows(
    found: Found, methods: Sequence[str], places: Sequence[Place]
) -> Iterator[list[str]]:
    """One line per method that has been run, one cell per network and size."""
    for method in methods:
        every = [found_of(found, net, method, size) for net, size in places]
        if any(every):
            cpu = max(result["cpu"] for results in every for result in results)
            yield [method, *map(text_of, every), f"{cpu:.1f}"]


def method_section(
    found: Found, title: str, methods: Sequence[str], places: Sequence[Place]
) -> Iterator[table.Section]:
    """A table of methods; columns of which nothing has been run are left out."""
    run = [
        place for place in places if any(found_of(found, place[0], m, place[1]) for m in methods)
    ]
    several = len({net for net, _ in places}) > 1
    header = " | ".join(["method", *(net if several else size for net, size in run), "CPU s"])
    if run:
        yield table.Section(title, header, method_rows(found, methods, run))


def base_of(found: Found, net: str) -> str:
    """How good the original is, and how large."""
    for key, result in found.results.items():
        if key.startswith(f"{net} |") and "base" in result:
            macs, parameters = amount(result["all_macs"]), amount(result["all_parameters"])
            return f"{result['base']:.2%}, {macs} MACs, {parameters} parameters"
    return "not run yet"


def detector_rows(found: Found) -> Iterator[list[str]]:
    """The person detector without data."""
    for net in DETECTOR:
        for method in NO_LOSS:
            for result in found_of(found, net, method, "ε 0"):
                shares = (result[n] / result[f"all_{n}"] for n in ("parameters", "macs", "bytes"))
                change = f"{result['max_change']:.2g}"
                yield [net, method, *(f"{s:.2%}" for s in shares), change, f"{result['cpu']:.1f}"]


def latency_rows(found: Found) -> Iterator[list[str]]:
    """Ratios and figures of every model on every machine, those with more to compute first."""
    for cell in latency_cells():
        models = (found.get(cell) or {"models": {}})["models"]
        for name, model in sorted(models.items(), key=lambda item: -item[1]["macs"]):
            yield latency_row(cell, name, model, models["original"])


def latency_row(cell: LatencyCell, name: str, model: Result, original: Result) -> list[str]:
    """One model on one machine."""
    runs = [model["runs"].get(batch) for batch in ("1", "16")]
    left = f"{model['macs'] / original['macs']:.1%}"
    return [cell.net, cell.place, name, left, *(run_text(run) if run else "" for run in runs)]


def run_text(run: Result) -> str:
    """The ratio, with its interval, then the figure."""
    if run["error"]:
        return str(run["error"])
    figure = amount(run["instructions"]) if run["instructions"] else seconds(run["p50"])
    ratio = run["speedup"]
    if not ratio:
        return figure
    return f"× {ratio['value']:.2f} ({ratio['low']:.2f}–{ratio['high']:.2f}), {figure}"


def deployed_rows(found: Found) -> Iterator[list[str]]:
    """ResNet8 in 8 bits and as .ort."""
    for cell in DEPLOYED_CELLS:
        result = found.get(cell)
        if result and "failed" not in result:
            left, lost = result["bytes"] / result["all_bytes"], result["base"] - result["score"]
            yield [cell.shape, f"{result['bytes']:,}", f"{left:.1%}", f"{result['score']:.2%}",
                   f"{100 * lost:.2f}", f"`{result['command']}`"]  # fmt: skip


def large_rows(found: Found) -> Iterator[list[str]]:
    """Time and memory of a network of the size of ResNet50."""
    for cell in LARGE_CELLS:
        result = found.get(cell)
        if result and "failed" not in result:
            shares = (result[n] / result[f"all_{n}"] for n in ("parameters", "macs"))
            yield [cell.size, *(f"{s:.1%}" for s in shares), f"{result['megabytes']:,.0f} MB",
                   f"{result['wall']:.0f} s", f"{result['cpu']:.0f} s"]  # fmt: skip


def command_rows(found: Found) -> Iterator[tuple[str, str]]:
    """What was run for each method, for one network."""
    for method in METHOD_NAMES:
        for key, result in found.results.items():
            if key.split(" | ")[1] == method and "command" in result:
                yield method, f"`{result['command']}`"
                break


def sections(found: Found) -> Iterator[table.Section]:
    """All tables."""
    yield table.Section("Promises", BAR_HEADER, bar_rows(found))
    for net in COMPARED:
        title = f"{net}, originally {base_of(found, net)}"
        yield from method_section(
            found, title, (*PEERS, *USUAL, DEFAULT), [(net, size) for size in MACS]
        )
    title = f"The same share of the channels of every axis, {RESNET20[0]}"
    yield from method_section(found, title, USUAL, [(RESNET20[0], size) for size in EACH])
    title, methods = f"Other images and widths, {HALF}", (*USUAL, *OTHER_COUNTS, *ALIGNED)
    yield from method_section(found, title, methods, [(net, HALF) for net in VARIED])
    title, nets = f"Other spellings of the same networks, {HALF}", (RESNET20[1], *RESNET8[1:])
    yield from method_section(found, title, USUAL, [(net, HALF) for net in nets])
    header = "network | method | parameters | MACs | bytes | largest change | CPU s"
    yield table.Section("Person detector, without data", header, detector_rows(found))
    timed = list(latency_rows(found)) or [["not run yet", "", "", "", "", ""]]
    yield table.Section("Times and ARM instructions", LATENCY_HEADER, timed)
    header = "ResNet8 | bytes | left | accuracy | points lost | command"
    yield table.Section("As it is deployed", header, deployed_rows(found))
    header = "size | parameters | MACs | peak memory | time | CPU time"
    title = (
        "A network of the size of ResNet50 (random weights, 224×224, 100 images, refit, 2 threads)"
    )
    yield table.Section(title, header, large_rows(found))
    yield table.Section("Commands", "method | command", command_rows(found))


def write_page(found: Found, path: Path) -> None:
    """Write the page."""
    title = "Channels: accuracy against multiply-adds"
    path.write_text(table.text("channels", title, sections(found), NOTE))
