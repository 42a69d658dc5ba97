"""RESULTS.md and latency.png, from what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.common.table import Section
from onnxfde.command.bench_table import amount, seconds

NOTE = """All variants of a network take turns (`onnxfde.bench`). "×" is how many times less than
the original: in median time on this machine, with a 95 % interval where it is wide, and in
counted instructions on ARM (a cost, not a time). "pruned like" sets the smallest weights to zero
until as many are left as in the merged network; dense kernels multiply zeros all the same. int8 is
dynamic. "differs" is the largest difference between an output on emulated ARM and on this machine,
relative to the largest output. The time of the planted networks (d-n-d) depends on their shape
only; they are merged by `refit`, the real ones by `minimal`."""
TIME_HEADER = "variant | bytes | parameters | mult-adds"
VAGUE = 1.1
"""An interval is shown where its ends differ by more than this factor; chosen."""
LARGEST = "1024-8192-1024"
PANELS = {
    "cpu, 1": ("time, 1 thread", 64),
    "cpu, 2": ("time, 2 threads", 64),
    "arm64:cortex-a53, 1": ("instructions, Cortex-A53", 1),
    "arm64:cortex-a76, 1": ("instructions, Cortex-A76", 1),
}
"""Title and batch size of each panel of the plot, by target and threads."""
STYLES = {
    "merged to 50 %": "o:",
    "merged to 25 %": "o--",
    "merged to 10 %": "o-",
    "pruned like 10 %": "x-",
    "int8": "s-",
    "merged to 10 %, int8": "D-",
}


def write(results: dict[str, Any], folder: Path) -> None:
    """RESULTS.md and latency.png."""
    parts = [
        "# Latency",
        "Made by `python -m benchmarks.latency`.",
        NOTE,
        machines(results),
        promises(results).text(),
        *(section(name, found).text() for name, found in results.items()),
    ]
    (folder / "RESULTS.md").write_text("\n\n".join(parts) + "\n\n![latency](latency.png)\n")
    plot(results, folder / "latency.png")


def machines(results: dict[str, Any]) -> str:
    """The machines, and the version of onnxruntime on each."""
    places = {
        p["machine"]: p["onnxruntime"] for r in results.values() for p in r["targets"].values()
    }
    return "Measured on: " + "; ".join(f"{m}, onnxruntime {v}" for m, v in places.items()) + "."


def columns(found: dict[str, Any]) -> list[tuple[dict[str, Any], int]]:
    """Every target with every batch size of a network."""
    return [
        (place, batch)
        for place in found["targets"].values()
        for batch in sorted({r["batch"] for line in place["lines"] for r in line["latencies"]})
    ]


def title(place: dict[str, Any], batch: int) -> str:
    """A column's heading."""
    if place["target"] != "cpu":
        return f"{place['target'].removeprefix('arm64:cortex-')}, batch {batch}"
    return f"cpu {place['threads']} thread{'s' * (place['threads'] > 1)}, batch {batch}"


def run_at(place: dict[str, Any], model: int, batch: int) -> dict[str, Any]:
    """The result of one model in one column."""
    runs: list[dict[str, Any]] = place["lines"][model]["latencies"]
    return next(run for run in runs if run["batch"] == batch)


def cell(run: dict[str, Any]) -> str:
    """The ratio first, then the figure."""
    if run["error"]:
        return str(run["error"])
    ratio = run["speedup"]
    times = f"{ratio['value']:.3g}×"
    if ratio["high"] > VAGUE * ratio["low"]:
        times += f" ({ratio['low']:.3g}–{ratio['high']:.3g})"
    figure = amount(run["instructions"]) if run["instructions"] else seconds(run["p50"])
    return f"{times}, {figure}"


def worst_difference(found: dict[str, Any], model: int) -> str:
    """The largest difference between ARM and this machine."""
    arm = [place for place in found["targets"].values() if place["target"] != "cpu"]
    runs = [run for place in arm for run in place["lines"][model]["latencies"]]
    return f"{max(run['difference'] for run in runs):.1g}" if runs else "–"


def section(name: str, found: dict[str, Any]) -> Section:
    """One network, with one row per variant."""
    wide = columns(found)
    header = " | ".join([TIME_HEADER, *(title(*column) for column in wide), "differs"])
    rows = [
        (
            model["file"],
            f"{model['bytes']:,}",
            amount(model["parameters"]),
            amount(model["multiply_adds"]),
            *(cell(run_at(place, i, batch)) for place, batch in wide),
            worst_difference(found, i),
        )
        for i, model in enumerate(found["models"])
    ]
    return Section(name, header, rows)


def promises(results: dict[str, Any]) -> Section:
    """The speed of the largest network, and how far ARM repeats and agrees."""
    return Section("What it shows", "what | figure", list(findings(results)))


def findings(results: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The figures behind the promises."""
    largest = results.get(LARGEST)
    if largest:
        names = [model["file"] for model in largest["models"]]
        for what in ("merged to 10 %", "pruned like 10 %"):
            for place, batch in columns(largest):
                run = run_at(place, names.index(what), batch)
                yield f"{LARGEST}, {what}, {title(place, batch)}", cell(run)
    arm = [
        (model["file"], run)
        for found in results.values()
        for place in found["targets"].values()
        if place["target"] != "cpu"
        for model, line in zip(found["models"], place["lines"], strict=True)
        for run in line["latencies"]
    ]
    fp32 = [run["difference"] for file, run in arm if "int8" not in file]
    int8 = [run["difference"] for file, run in arm if "int8" in file]
    yield "largest difference of ARM from here, fp32", f"{max(fp32, default=0):.2g}"
    yield "the same, int8", f"{max(int8, default=0):.2g}"
    spread = max((run["repeatability"] for _, run in arm), default=0)
    yield "instruction counts of three regions repeat within", f"{spread:.2%}"


def plot(results: dict[str, Any], path: Path) -> None:
    """How many times less than the original, against the size of the network."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(PANELS), figsize=(16, 4.8), sharey=True)
    ordered = sorted(results.values(), key=lambda found: found["models"][0]["multiply_adds"])
    for axes, (target, (name, batch)) in zip(panels, PANELS.items(), strict=True):
        for variant, style in STYLES.items():
            points = [
                point for found in ordered for point in points_of(found, variant, target, batch)
            ]
            axes.plot(*zip(*points, strict=True), style, label=variant, markersize=5)
        axes.axhline(1.0, color="grey", linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlabel="multiply-adds of the original, per sample")
        axes.set_title(f"{name}, batch {batch}")
        axes.set_yticks([0.5, 1, 2, 5, 10, 20, 50], ["0.5", "1", "2", "5", "10", "20", "50"])
        axes.minorticks_off()
    panels[0].set_ylabel("times less than the original")
    panels[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def points_of(
    found: dict[str, Any], variant: str, target: str, batch: int
) -> Iterator[tuple[float, float]]:
    """Multiply-adds of the original and the ratio of a variant, where it was measured."""
    names = [model["file"] for model in found["models"]]
    for run in found["targets"][target]["lines"][names.index(variant)]["latencies"]:
        if run["batch"] == batch and run["speedup"]:
            yield found["models"][0]["multiply_adds"], run["speedup"]["value"]
