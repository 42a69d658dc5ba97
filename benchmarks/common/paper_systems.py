"""The eight systems of the paper's evaluation: what is learned, and how each column is encoded.

Simulated systems are 30,000 uniform random states and their exact derivatives, both min-max scaled.
In public tables, numbers are standardised, flags and one-hot columns are 0 or 1, and the target is
min-max scaled. All are split 70/20/10 into training, validation and test rows; only the training
rows determine the scaling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Protocol

import numpy as np

from benchmarks.common.datasets import (
    BOX,
    STATES,
    Rows,
    abalone_table,
    protein_table,
    read_table,
    read_text,
    simulated,
    tabular,
)
from benchmarks.common.dynamics import binding, electrical, glycolysis, polymerization
from benchmarks.common.folders import SHARED
from onnxfde.numbers import Array

DATA = SHARED / "data"
PARTS = STATES * 7 // 10, STATES * 2 // 10
"""Training and validation rows of a simulated system: the paper's 70 % and 20 %."""


class RowsOf(Protocol):
    """A function that gives the rows of a system for a seed."""

    def __call__(self, seed: int, data_dir: Path | None = None) -> Rows:
        """Simulate the rows, or read them from a folder of public tables."""
        ...


@dataclass(frozen=True)
class System:
    """One of the systems: what a network learns."""

    name: str
    public: bool
    inputs: int
    outputs: int
    rows: RowsOf
    note: str
    """How the columns are encoded; networks are trained anew when it changes."""


@dataclass(frozen=True)
class Table:
    """A public table: our file name, UCI's file name and page, and how to encode the file."""

    file: str
    uci_file: str
    page: str
    encode: Callable[[Path], tuple[Array, Array]]
    numbers: int | None = None
    """How many leading columns are standardised; None means all."""

    def path(self, data_dir: Path | None = None) -> Path:
        """The file, under our compressed name or under UCI's."""
        folder = data_dir or DATA
        for name in (self.file, self.uci_file):
            if (folder / name).exists():
                return folder / name
        raise FileNotFoundError(
            f"neither {self.file} nor {self.uci_file} is in {folder}: get the second from "
            f"{self.page} and name its folder with --data-dir"
        )


WEATHER = (
    *("Clear", "Clouds", "Drizzle", "Fog", "Haze", "Mist"),
    *("Rain", "Smoke", "Snow", "Squall", "Thunderstorm"),
)
LOWEST_KELVIN = 200.0
"""Ten temperatures are recorded as 0 K; all others are above this."""


def metro_table(path: Path) -> tuple[Array, Array]:
    """Metro: hour, weekday, month, temperature, clouds; flags and the weather as one-hot columns.

    Rain and snow are flags, since one hour is recorded with 9,831 mm.
    """
    lines = read_table(path)[1:]
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
    """Household power: six measures, hour and weekday; the target is the seventh, active power."""
    text = read_text(path).splitlines()[1:]
    lines = [line.split(";", 2) for line in text if line and "?" not in line]
    days = {day: datetime.strptime(day, "%d/%m/%Y").weekday() for day in {x[0] for x in lines}}
    weekday = [days[line[0]] for line in lines]
    hour = [int(line[1][:2]) + int(line[1][3:5]) / 60 for line in lines]
    measures = np.loadtxt([line[2] for line in lines], delimiter=";")
    return np.column_stack([measures[:, 1:], hour, weekday]), measures[:, :1]


UCI = "https://archive.ics.uci.edu/dataset"
TABLES = {
    "Abalone": Table("abalone.data.xz", "abalone.data", f"{UCI}/1", abalone_table),
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
    "Protein": Table("CASP.csv.xz", "CASP.csv", f"{UCI}/265", protein_table),
}


@cache
def read(table: Table, path: Path) -> tuple[Array, Array]:
    """The inputs and the target of a table, read only once per process."""
    return table.encode(path)


def public_rows(name: str, seed: int, data_dir: Path | None = None) -> Rows:
    """The rows of a public table."""
    table = TABLES[name]
    return tabular(*read(table, table.path(data_dir)), seed, table.numbers)


@dataclass(frozen=True)
class Dynamics:
    """A simulated system: right-hand side, number of variables, and the range of the states."""

    slope: Callable[[Array], Array]
    variables: int
    box: tuple[float, float]


DYNAMICS = {
    "RN": Dynamics(binding, 6, BOX),
    "EN": Dynamics(electrical, 7, (-25.0, 25.0)),
    "POL": Dynamics(polymerization, 9, BOX),
    "GLY": Dynamics(glycolysis, 7, BOX),
}


def simulated_rows(name: str, seed: int, data_dir: Path | None = None) -> Rows:
    """The rows of a simulated system."""
    del data_dir
    it = DYNAMICS[name]
    return simulated(it.slope, it.variables, it.box, seed, PARTS)


def simulated_system(name: str, note: str) -> System:
    """The entry of a simulated system."""
    size = DYNAMICS[name].variables
    return System(name, False, size, size, partial(simulated_rows, name), note)


def public_system(name: str, inputs: int, note: str) -> System:
    """The entry of a public table."""
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
