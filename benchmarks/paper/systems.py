"""The eight systems of the paper's evaluation: what is learned, and how each column is encoded.

Simulated ones are 30,000 uniform states and their exact derivatives, both min-max scaled; public
tables have numbers standardised, flags and one-hot columns as 0 and 1, and the target min-max
scaled. All are split 70/20/10 into training, validation and test; only the training rows scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Protocol

import numpy as np

from benchmarks import tasks
from benchmarks.tasks import STATES, Array, Rows

DATA = tasks.SHARED / "data"
PARTS = STATES * 7 // 10, STATES * 2 // 10


class RowsOf(Protocol):
    """The rows of a system for a seed; public tables are read from a folder."""

    def __call__(self, seed: int, data_dir: Path | None = None) -> Rows:
        """Load or simulate them."""
        ...


@dataclass(frozen=True)
class System:
    """What a network learns."""

    name: str
    public: bool
    inputs: int
    outputs: int
    rows: RowsOf
    note: str


@dataclass(frozen=True)
class Table:
    """A public table: our file, UCI's file and page, and how it is encoded."""

    file: str
    uci_file: str
    page: str
    encode: Callable[[Path], tuple[Array, Array]]
    numbers: int | None = None  # the leading columns that are standardised; None is all

    def path(self, data_dir: Path | None = None) -> Path:
        """Where it is: xz-compressed or as UCI has it."""
        folder = data_dir or DATA
        for name in (self.file, self.uci_file):
            if (folder / name).exists():
                return folder / name
        raise FileNotFoundError(
            f"neither {self.file} nor {self.uci_file} is in {folder}: get the second from "
            f"{self.page} and name its folder with --data-dir"
        )


def electrical(v: Array) -> Array:
    """Right-hand side of the H-tree of depth 3: v11, v21, v22, v31 to v34."""
    root, b = 1.1195700850873262, 0.5606494502496796
    second = np.array([0.5233235724597057, 0.5232821916287071])
    third = np.array([0.603301590244999, 0.6033785530926093, 0.603325178373297, 0.6033616699243862])
    v1, v2, v3 = v[:, :1], v[:, 1:3], v[:, 3:]
    top = root * (2 - v1) - b * (2 * v1 - v2.sum(axis=1, keepdims=True))
    return np.hstack([top, second * (v1 - v2), third * (v2[:, [0, 0, 1, 1]] - v3)])


def polymerization(s: Array) -> Array:
    """Mass action of A1, A2, A1p, A2p, A1CHCHp, A2CHCHp, H, H2, C2H2.

    Ai + H ⇌ Aip + H2, Aip + C2H2 ⇌ AiCHCHp, A1CHCHp + C2H2 → A2 + H, A2CHCHp + C2H2 → A1 + H.
    """
    a1, a2, p1, p2, c1, c2, h, h2, acetylene = s.T
    r1 = 1.0001 * a1 * h - 0.1 * p1 * h2
    r2 = 1.0004 * a2 * h - 0.1 * p2 * h2
    q1 = 2.0003 * p1 * acetylene - 0.2 * c1
    q2 = 1.9985 * p2 * acetylene - 0.2 * c2
    g1 = 2.9998 * c1 * acetylene
    g2 = 3.0010 * c2 * acetylene
    return np.stack(
        [
            g2 - r1,
            g1 - r2,
            r1 - q1,
            r2 - q2,
            q1 - g1,
            q2 - g2,
            g1 + g2 - r1 - r2,
            r1 + r2,
            -q1 - q2 - g1 - g2,
        ],
        axis=1,
    )


WEATHER = (
    *("Clear", "Clouds", "Drizzle", "Fog", "Haze", "Mist"),
    *("Rain", "Smoke", "Snow", "Squall", "Thunderstorm"),
)
LOWEST_KELVIN = 200.0  # ten temperatures are recorded as 0 K


def metro_table(path: Path) -> tuple[Array, Array]:
    """Metro: hour, weekday, month, temperature, clouds; flags and the weather as one-hot columns.

    Rain and snow are flags, since one hour is recorded with 9,831 mm.
    """
    lines = tasks.read_table(path)[1:]
    times = [datetime.fromisoformat(line[7]) for line in lines]
    parts = np.array([[time.hour, time.weekday(), time.month] for time in times], dtype=float)
    temperature = np.array([float(line[1]) for line in lines])
    temperature[temperature < LOWEST_KELVIN] = np.median(temperature)
    clouds = [float(line[4]) for line in lines]
    flags = [[float(line[2]) > 0, float(line[3]) > 0, line[0] != "None"] for line in lines]
    weather = [[line[5] == kind for kind in WEATHER] for line in lines]
    volume = np.array([[float(line[8])] for line in lines])
    return np.column_stack([parts, temperature, clouds, flags, weather]), volume


def household_table(path: Path) -> tuple[Array, Array]:
    """Household power: the other six measures, hour and weekday; the active power is the target."""
    text = tasks.read_text(path).splitlines()[1:]
    lines = [line.split(";", 2) for line in text if line and "?" not in line]
    days = {day: datetime.strptime(day, "%d/%m/%Y").weekday() for day in {x[0] for x in lines}}
    weekday = [days[line[0]] for line in lines]
    hour = [int(line[1][:2]) + int(line[1][3:5]) / 60 for line in lines]
    measures = np.loadtxt([line[2] for line in lines], delimiter=";")
    return np.column_stack([measures[:, 1:], hour, weekday]), measures[:, :1]


UCI = "https://archive.ics.uci.edu/dataset"
TABLES = {
    "Abalone": Table("abalone.data.xz", "abalone.data", f"{UCI}/1", tasks.abalone_table),
    "HEPC": Table(
        "household_power_consumption.PARTIAL-2006-12-16_2007-06-30.txt.xz",
        "household_power_consumption.txt",
        f"{UCI}/235",
        household_table,
    ),
    "Metro": Table(
        "Metro_Interstate_Traffic_Volume.csv.xz",
        "Metro_Interstate_Traffic_Volume.csv",
        f"{UCI}/492",
        metro_table,
        numbers=5,
    ),
    "Protein": Table("CASP.csv.xz", "CASP.csv", f"{UCI}/265", tasks.protein_table),
}


@cache
def read(table: Table, path: Path) -> tuple[Array, Array]:
    """A table's inputs and target; one process reads it once."""
    return table.encode(path)


def public_rows(name: str, seed: int, data_dir: Path | None = None) -> Rows:
    """The rows of a public table."""
    table = TABLES[name]
    return tasks.tabular(*read(table, table.path(data_dir)), seed, table.numbers)


@dataclass(frozen=True)
class Dynamics:
    """A simulated system: its right-hand side, variables, and the box the states are from."""

    slope: Callable[[Array], Array]
    variables: int
    box: tuple[float, float]


DYNAMICS = {
    "RN": Dynamics(tasks.binding, 6, (0.0, 100.0)),
    "EN": Dynamics(electrical, 7, (-25.0, 25.0)),
    "POL": Dynamics(polymerization, 9, (0.0, 100.0)),
    "GLY": Dynamics(tasks.glycolysis, 7, (0.0, 100.0)),
}


def simulated_rows(name: str, seed: int, data_dir: Path | None = None) -> Rows:
    """The rows of a simulated system."""
    del data_dir
    it = DYNAMICS[name]
    return tasks.simulated(it.slope, it.variables, it.box, seed, PARTS)


def simulated_system(name: str, note: str) -> System:
    """A simulated system under its name."""
    size = DYNAMICS[name].variables
    return System(name, False, size, size, partial(simulated_rows, name), note)


def public_system(name: str, inputs: int, note: str) -> System:
    """A public table under its name."""
    return System(name, True, inputs, 1, partial(public_rows, name), note)


SYSTEMS = {
    system.name: system
    for system in (
        simulated_system("RN", "6-species reversible binding; ours, the paper prints no network"),
        simulated_system("EN", "H-tree of depth 3, voltages in [-25, 25]"),
        simulated_system("POL", "polymerization by mass action, 9 variables in [0, 100]"),
        simulated_system("GLY", "glycolytic oscillator, 7 species in [0, 100]"),
        public_system("Abalone", 10, "sex one-hot and 7 measures, all standardised; target rings"),
        public_system(
            "HEPC",
            8,
            "PARTIAL file, 16/12/2006 to 30/6/2007, rows with a missing value left out; "
            "6 measures, hour of the day and weekday, all standardised; target Global_active_power",
        ),
        public_system(
            "Metro",
            19,
            "hour, weekday, month, temperature (0 K as the median) and clouds standardised; rain, "
            "snow and holiday flags and one-hot weather_main as 0/1; target traffic_volume",
        ),
        public_system("Protein", 9, "F1 to F9 standardised; target RMSD"),
    )
}
