"""What `benchmarks.speed` measures, what the code took before, and how much it may take.

Quantities of a run: `u` (the time of the report's stage "partition" in units of one product W Wᵀ),
`cpu` (user and system seconds of the whole command), `gb` (peak memory), `files` (peak memory over
the size of the model file), `neurons` (left in all layers together).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Quantity = Literal["u", "cpu", "gb", "files", "neurons"]
Beside = Literal["", "before", "onnxslim"]
LONG = 300.0
"""Seconds after which the code before is given up; chosen."""
AFTER_LIMIT = 900.0
"""Seconds after which the new code is given up; chosen."""
NO_SLOWER = 1.05
""""No slower" up to the noise between two medians of 9; chosen."""
PAPER = ("--semantics", "paper", "--eps", "0.05", "--relation")
REFIT = ("--keep", "25%", "--quotient", "refit")


@dataclass(frozen=True)
class Bar:
    """A quantity that may be at most `limit`, or so many times what something else takes."""

    quantity: Quantity
    limit: float
    times: Beside = ""

    @property
    def text(self) -> str:
        """The bar as the table shows it."""
        unit = {"u": " u", "cpu": " s", "gb": " GB", "files": " × the file", "neurons": " neurons"}
        if self.times:
            share = "no more than" if self.limit == NO_SLOWER else f"≤ {self.limit:g} ×"
            kind = {"neurons": " in neurons", "cpu": ""}.get(self.quantity, "")
            return f"{share} {self.times}{kind}"
        return f"≤ {self.limit:g}{unit[self.quantity]}"


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    name: str
    """For `--only`."""
    what: str
    recipe: str
    """The model (`speed_models`); empty if the command takes none."""
    words: tuple[str, ...]
    """The command: what follows `python -m onnxfde optimize IN OUT`, or the whole command line."""
    today: str
    """What was measured by hand before this benchmark existed."""
    bars: tuple[Bar, ...]
    run_before: bool = True
    """Whether the code before can do it in a sensible time and memory."""
    rounds: int = 1
    """How often the commands run, in turns; medians count."""
    layers: int = 1
    """Layers of the model, if `u` is meant for each of them."""
    beside: Beside = ""

    @property
    def shape(self) -> str:
        """The layer that `u` is measured on; a medium one if times are not in u."""
        in_units = any(bar.quantity == "u" for bar in self.bars)
        return self.recipe.split()[-1] if in_units else "1024-1024-1024"

    @property
    def in_units(self) -> bool:
        """Whether times are in u, and so wall times."""
        return any(bar.quantity == "u" for bar in self.bars)


@dataclass(frozen=True)
class GrowthRow:
    """How the stage "partition" grows with neurons and with inputs."""

    name: str
    what: str
    kind: str
    words: tuple[str, ...]
    by_neurons: tuple[str, ...]
    by_inputs: tuple[str, ...]


def paper_row(relation: str, kind: str) -> Row:
    """A row of the paper's rule on the largest layer."""
    return Row(
        f"paper-{relation}-{kind}",
        f"1024-8192-1024 {kind}, `--semantics paper`, {relation}, phase",
        f"{kind} 1024-8192-1024",
        (*PAPER, relation),
        "17–19 u",
        (Bar("u", 5.0 if kind == "cluster" else 3.0),),
    )


def default_row(shape: str, seconds: float, today: str) -> Row:
    """A row of default options on a random network."""
    bars = (Bar("cpu", seconds), Bar("neurons", 1.02, "before"))
    name, what = f"default-{shape}", f"{shape} random, default options, CPU of the whole command"
    return Row(name, what, f"random {shape}", (), today, bars)


def wide_row(neurons: int, today: str, seconds: float, gigabytes: float) -> Row:
    """A row of a layer with many neurons and few inputs at ε 0."""
    shape = f"10-{neurons}-10"
    bars = (Bar("cpu", seconds), Bar("gb", gigabytes))
    name, what = f"wide-{neurons}", f"{shape} random, `--eps 0`, verified"
    return Row(name, what, f"random {shape}", ("--eps", "0"), today, bars, run_before=False)


ROWS = (
    *(paper_row(r, k) for r in ("forward", "backward") for k in ("planted", "distinct", "cluster")),
    Row(
        "refit-4096", "512-4096-512 random, `--keep 25% --quotient refit`, phase",
        "random 512-4096-512", REFIT, "about 65 u", (Bar("u", 16.0),),
    ),
    Row(
        "refit-8192", "1024-8192-1024 random, the same",
        "random 1024-8192-1024", REFIT, "5–8 minutes", (Bar("u", 15.0),), run_before=False,
    ),
    Row(
        "refit-eps-4096", "512-4096-512 random, `--eps 0.1 --quotient refit`, phase",
        "random 512-4096-512", ("--eps", "0.1", "--quotient", "refit"), "66 s", (Bar("u", 20.0),),
    ),
    default_row("64-256-10", 4.0, "18–21 s"),
    default_row("784-256-10", 5.0, "9–10 s"),
    default_row("512-1024-512", 12.0, "81 s"),
    Row(
        "digits", "trained digits 64-256-10, `--eps 0.1 --data`, CPU of the whole command",
        "digits", ("--eps", "0.1", "--data", "DATA"), "11 s",
        (Bar("cpu", 3.0), Bar("neurons", 10.0)),
    ),
    wide_row(12_000, "13.6 GB, unfinished", 4.0, 0.4),
    wide_row(100_000, "MemoryError", 12.0, 0.8),
    Row(
        "external", "2.5 GB external model with two 2048-8192-2048 layers, `--eps 0`, phase",
        "external 2048-8192-2048", ("--eps", "0"), "9.6 GB, unfinished at 500 s",
        (Bar("u", 40.0), Bar("gb", 4.0)), run_before=False, layers=2,
    ),
    Row(
        "single-inspect", "2.1 GB single file, `inspect`",
        "single 64-256-10", ("-m", "onnxfde", "inspect", "IN"), "6.3 GB", (Bar("files", 2.5),),
        run_before=False,
    ),
    Row(
        "single-optimize", "2.1 GB single file, `optimize --eps 0`",
        "single 64-256-10", ("--eps", "0"), "12.5 GB", (Bar("files", 2.5),), run_before=False,
    ),
    Row(
        "help", "`onnxfde --help`", "", ("-m", "onnxfde", "--help"), "0.12–0.18 s",
        (Bar("cpu", NO_SLOWER, "before"),), rounds=9,
    ),
    Row(
        "import", "`import onnxfde`", "", ("-c", "import onnxfde"), "0.03 s",
        (Bar("cpu", NO_SLOWER, "before"),), rounds=9,
    ),
    Row(
        "beside-onnxslim",
        "269 KB MLP 64-520-64, `--quotient refit`, verified, beside onnxslim without a check",
        "random 64-520-64", ("--quotient", "refit"), "1.1–1.3 × onnxslim",
        (Bar("cpu", 1.0, "onnxslim"),), rounds=9, beside="onnxslim",
    ),
)  # fmt: skip
"""The lines of the table."""
GROWTH = tuple(
    GrowthRow(name, what, kind, words, by_neurons, by_inputs)
    for name, what, kind, words, by_neurons, by_inputs in (
        *(
            (
                f"growth-paper-{relation}", f"`--semantics paper`, {relation}, planted", "planted",
                (*PAPER, relation), tuple(f"256-{n}-256" for n in (1024, 2048, 4096)),
                tuple(f"{d}-2048-{d}" for d in (128, 256, 512)),
            )
            for relation in ("forward", "backward")
        ),
        (
            "growth-refit", "`--keep 25% --quotient refit`, random", "random", REFIT,
            tuple(f"128-{n}-128" for n in (512, 1024, 2048)),
            tuple(f"{d}-1024-{d}" for d in (64, 128, 256)),
        ),
        (
            "growth-default", "default options, random", "random", (),
            tuple(f"64-{n}-10" for n in (64, 128, 256, 512)),
            tuple(f"{d}-256-10" for d in (16, 32, 64, 128)),
        ),
    )
)  # fmt: skip
"""Growth rows; the sizes are chosen so that the code before takes seconds."""
