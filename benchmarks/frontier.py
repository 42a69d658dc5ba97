"""How much error does each size cost? onnxfde's quotients beside pruning, on trained networks.

`python -m benchmarks.frontier` (extras `paper` and `plot`, the shared folder, and `pip install
--no-deps onnxsim torch-pruning`) writes `frontier.md` and `frontier.png`. `--bars` measures only
the project's promises, and `--only gly,rn` only some networks; both print and write no files.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from benchmarks.common import table
from benchmarks.common.processes import load_note
from benchmarks.common.shrinking import (
    DATA,
    METHODS,
    RANGE,
    Outcome,
    cost_text,
    load,
    measured,
    score_text,
    seeds,
)

LADDERS = {
    "gly": (35, 27, 20, 16, 12, 10, 8, 7, 6, 5),
    "rn": (27, 20, 16, 11, 9, 7, 5),
    "abalone": (40, 20, 11, 10, 8, 6, 4),
    "protein": (40, 20, 11, 10, 8, 6, 4),
    "digits": (64, 48, 32, 24, 16, 12, 8),
    "mnist": (128, 64, 48, 32, 24, 16),
    "cryptonets": (96, 64, 48, 32, 24, 16),
}
"""Numbers of neurons to shrink each network to; chosen from little loss to much."""
BAR_HEADER = (
    "promise | network | seed | method | neurons | GRP % | original | result | against the original"
    " | seconds | seconds, 1 thread | "
)
LADDER_HEADER = (
    "method | neurons | GRP % | test | against the original | error | lower bound | seconds"
)
NOTE = """Every figure is measured on test rows with the saved float32 model in onnxruntime.
GRP %: remaining nonzero parameters, in percent of the original's. "range": only one range for all
inputs is known; "data": some unlabelled training inputs too (1,000 rows, or 4,000 MNIST images).
"error" is the relative change of the layer's output in onnxfde's metric; "lower bound" is the error
that no layer with so many neurons can go below. Where there are several seeds, a ladder shows their
mean, and the worst in brackets. Nothing is retrained. Where a bar limits the time, "seconds"
decides, with the linear algebra's default number of threads; the ladders and "seconds, 1 thread"
use one thread, which is faster where other work keeps the cores busy."""


@dataclass(frozen=True)
class Bar:
    """A promise of the project about `minimal`: at so many neurons, `holds` is true."""

    net: str
    method: str
    neurons: int
    promise: str
    holds: Callable[[Outcome], bool]


BARS = (
    Bar("gly", RANGE, 10, "MSE ≤ 1.02 ×, GRP ≤ 9 %", lambda o: o.ratio <= 1.02 and o.grp <= 9),
    Bar("gly", DATA, 8, "MSE ≤ 1.02 ×, GRP ≤ 7.1 %", lambda o: o.ratio <= 1.02 and o.grp <= 7.1),
    Bar("rn", RANGE, 11, "MSE ≤ 1e-8, GRP ≤ 10 %", lambda o: o.score <= 1e-8 and o.grp <= 10),
    *(
        bar
        for net in ("abalone", "protein")
        for bar in (
            Bar(
                net, RANGE, 11, "MSE ≤ 1.001 ×, GRP ≤ 9.3 %",
                lambda o: o.ratio <= 1.001 and o.grp <= 9.3,
            ),
            Bar(
                net, DATA, 6, "MSE ≤ 1.02 ×, GRP ≤ 5.5 %",
                lambda o: o.ratio <= 1.02 and o.grp <= 5.5,
            ),
        )
    ),
    *(
        Bar(
            "digits", method, neurons, "0.6 points lost at most, under 10 s",
            lambda o: o.lost <= 0.6 and o.seconds < 10,
        )
        for method, neurons in ((RANGE, 32), (DATA, 12))
    ),
    Bar("cryptonets", DATA, 64, "accuracy ≥ 96.9 %", lambda o: o.score >= 0.969),
    Bar("cryptonets", DATA, 32, "accuracy ≥ 95.8 %", lambda o: o.score >= 0.958),
)  # fmt: skip


def bar_rows(names: Iterable[str]) -> Iterator[tuple[object, ...]]:
    """One row per promise and seed."""
    for bar in BARS:
        for seed in seeds(bar.net) if bar.net in names else ():
            found = measured(bar.net, seed, bar.method, bar.neurons)
            alone = measured(bar.net, seed, bar.method, bar.neurons, threads=1)
            yield (
                bar.promise, bar.net, seed, bar.method, f"{found.before} → {found.neurons}",
                f"{found.grp:.2f}", score_text(found.metric, found.base),
                score_text(found.metric, found.score), cost_text([found]),
                f"{found.seconds:.1f}", f"{alone.seconds:.1f}",
                "pass" if bar.holds(found) else "**fail**",
            )  # fmt: skip


def ladder(name: str, method: str) -> Iterator[list[Outcome]]:
    """The outcomes of all seeds at each count, largest first; equal results are listed once."""
    before: list[int] = []
    for neurons in LADDERS[name]:
        found = [measured(name, seed, method, neurons, threads=1) for seed in seeds(name)]
        left = [outcome.neurons for outcome in found]
        if left != before:
            yield found
        if left == [outcome.before for outcome in found]:
            return  # the tool removes nothing
        before = left


def ladder_rows(name: str) -> Iterator[tuple[object, ...]]:
    """One row per method and count."""
    for method in METHODS:
        for found in ladder(name, method):
            metric = found[0].metric
            idle = all(outcome.neurons == outcome.before for outcome in found)
            yield (
                f"{method}: removes nothing" if idle else method,
                max(outcome.neurons for outcome in found),
                f"{mean(outcome.grp for outcome in found):.1f}",
                score_text(metric, mean(outcome.score for outcome in found)),
                cost_text(found),
                number([outcome.error for outcome in found], "–"),
                number(
                    [outcome.bound for outcome in found],
                    "–" if found[0].error is None else "no bound",
                ),
                f"{mean(outcome.seconds for outcome in found):.1f}",
            )


def heading(name: str) -> str:
    """The name of a network and the ranges of its inputs."""
    ranges = [load(name, seed).limits for seed in seeds(name)]
    return f"{name}, inputs in " + ", ".join(sorted({f"[{a:.3g}, {b:.3g}]" for a, b in ranges}))


def number(values: list[float | None], missing: str) -> str:
    """The mean, or `missing` if any value is None."""
    known = [value for value in values if value is not None]
    return f"{mean(known):.3g}" if len(known) == len(values) else missing


def plot(names: Iterable[str]) -> None:
    """One panel per network, one curve per method."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 4, figsize=(16, 7))
    for axes, name in zip(panels.flat, names, strict=False):
        for method in METHODS:
            rungs = list(ladder(name, method))
            x = [mean(o.grp for o in found) for found in rungs]
            y = [mean(o.score for o in found) for found in rungs]
            if x[0] < 100:
                axes.plot(x, y, "o-" if method in (RANGE, DATA) else ".--", label=method)
        base = mean(o.base for o in rungs[0])
        axes.axhline(base, color="black", linewidth=0.8, label="original")
        accuracy = rungs[0][0].metric == "accuracy"
        axes.set(title=name, xlabel="GRP %", ylabel="test " + rungs[0][0].metric)
        if accuracy:
            axes.set_ylim(base - 0.2, base + 0.01)
        else:
            axes.set_yscale("log")
            axes.set_ylim(top=min(1.0, axes.get_ylim()[1]))  # targets lie in [0, 1]
    panels.flat[-1].axis("off")
    panels.flat[-1].legend(*panels.flat[0].get_legend_handles_labels(), loc="center")
    figure.tight_layout()
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=110)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frontier")
    parser.add_argument("--only", default=",".join(LADDERS), help="networks, separated by commas")
    parser.add_argument("--bars", action="store_true", help="only the promises of the project")
    options = parser.parse_args()
    options.nets = options.only.split(",")
    if unknown := sorted(set(options.nets) - set(LADDERS)):
        parser.error(f"unknown: {', '.join(unknown)}; the networks are {', '.join(LADDERS)}")
    return options


def main() -> None:
    """Measure the bars, and the ladders unless only bars are wanted."""
    options = parsed()
    note = f"{NOTE} {load_note()}"
    sections = [table.Section("Bars", BAR_HEADER, list(bar_rows(options.nets)))]
    if not options.bars:
        sections += [
            table.Section(heading(name), LADDER_HEADER, list(ladder_rows(name)))
            for name in options.nets
        ]
    title = "Error against size"
    if options.bars or options.nets != list(LADDERS):
        print(table.text(__file__, title, sections, note))
        return
    table.write_sections(__file__, title, sections, note)
    plot(LADDERS)


if __name__ == "__main__":
    main()
