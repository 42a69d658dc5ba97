"""ezkl: a proof that a network computed its outputs, made and verified.

A circuit is a table with a power of two of rows. Rounding splits numbers into digits, and the table
of digits needs twice their base: with ezkl's own base of 2^14 no table has less than 2^15 rows, so
smaller bases are tried too, and the smallest table is taken.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ezkl
import numpy as np

from onnxfde.errors import TargetError, in_one_line
from onnxfde.graph.fixed_copy import fixed_copy
from onnxfde.machines.targets.base import Figure
from onnxfde.numbers import Array
from onnxfde.running.open_files import open_model

DECOMPOSITIONS = ((16384, 2), (1024, 3), (256, 4))
"""Base and number of digits: ezkl's own, and smaller ones for numbers at least as large."""


@dataclass(frozen=True)
class EzklEngine:
    """Halo2 circuits by ezkl."""

    folder: Path

    @property
    def title(self) -> str:
        """The engine, as the heading of a table shows it."""
        return f"ezkl {version('ezkl')}, KZG; the proof is verified"

    def loaded(self, file: Path, x: Array) -> ProvenRun:
        """A circuit with its keys and a witness; raises OnnxfdeError if that is impossible."""
        return self.circuit(file, x).prepared()

    def circuit(self, file: Path, x: Array) -> ProvenRun:
        """A circuit without keys."""
        if x.dtype != np.float32:
            raise TargetError(f"ezkl takes float32 only, and its input is {x.dtype}")
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        graph = open_model(file).graph
        (folder / "model.onnx").write_bytes(fixed_copy(graph, x.shape).SerializeToString())
        (folder / "input.json").write_text(json.dumps({"input_data": [x.ravel().tolist()]}))
        return ProvenRun(folder, self.folder, len(x), *smallest_circuit(folder))


def called(step: Callable[..., Any], *arguments: str | int, **options: Any) -> tuple[Any, float]:
    """What a step of ezkl returns, and how long it takes."""
    start = time.perf_counter()
    try:
        found = step(*arguments, **options)
    except RuntimeError as error:
        raise TargetError(f"ezkl: {in_one_line(error)}") from None
    return found, time.perf_counter() - start


def smallest_circuit(folder: Path) -> tuple[dict[str, Any], int]:
    """The settings with the fewest rows, and the logrows of ezkl's own decomposition."""
    found = []
    for base, digits in DECOMPOSITIONS:
        options: Any = ezkl.PyRunArgs()
        options.decomp_base, options.decomp_legs = base, digits
        file = folder / f"settings-{base}.json"
        model, data = str(folder / "model.onnx"), str(folder / "input.json")
        called(ezkl.gen_settings, model, str(file), py_run_args=options)
        called(ezkl.calibrate_settings, data, model, str(file), "resources")
        found.append((json.loads(file.read_text()), file))
    best, file = min(found, key=lambda pair: pair[0]["run_args"]["logrows"])
    file.rename(folder / "settings.json")
    return best, found[0][0]["run_args"]["logrows"]


@dataclass
class ProvenRun:
    """A circuit in a folder."""

    folder: Path
    shared: Path
    """Where reference strings are kept."""
    samples: int
    settings: dict[str, Any]
    default_logrows: int
    load_seconds: float = 0.0
    witness_seconds: float = 0.0

    def place(self, name: str) -> str:
        """The path of one of its files."""
        return str(self.folder / name)

    @property
    def logrows(self) -> int:
        """The circuit has 2^logrows rows."""
        return int(self.settings["run_args"]["logrows"])

    @property
    def reference_string(self) -> str:
        """A reference string for tests: nobody else took part in making it."""
        file = self.shared / f"{self.logrows}.srs"
        if not file.exists():
            called(ezkl.gen_srs, str(file), self.logrows)
        return str(file)

    def prepared(self) -> ProvenRun:
        """The same with a circuit, keys and a witness."""
        circuit, srs = self.place("circuit"), self.reference_string
        model, settings = self.place("model.onnx"), self.place("settings.json")
        called(ezkl.compile_circuit, model, circuit, settings)
        _, self.load_seconds = called(
            ezkl.setup, circuit, self.place("vk"), self.place("pk"), srs_path=srs
        )
        _, self.witness_seconds = called(
            ezkl.gen_witness, self.place("input.json"), circuit, self.place("witness.json")
        )
        return self

    def run(self) -> None:
        """Make a proof."""
        files = [self.place(name) for name in ("witness.json", "circuit", "pk", "proof")]
        called(ezkl.prove, *files, srs_path=self.reference_string)

    def output(self) -> Array:
        """What the circuit computed."""
        witness = json.loads((self.folder / "witness.json").read_text())
        numbers = witness["pretty_elements"]["rescaled_outputs"][0]
        return np.array([float(number) for number in numbers])

    def sizes(self) -> list[Figure]:
        """The size of the circuit."""
        return [
            Figure("rows", self.settings["num_rows"]),
            Figure("logrows", self.logrows),
            Figure("logrows by default", self.default_logrows),
            Figure("decomposition base", self.settings["run_args"]["decomp_base"]),
        ]

    def figures(self, seconds: float) -> list[Figure]:
        """Rows, sizes and the times of the other steps."""
        verified, took = called(
            ezkl.verify, self.place("proof"), self.place("settings.json"), self.place("vk"),
            srs_path=self.reference_string,
        )  # fmt: skip
        if not verified:
            raise TargetError("ezkl: the proof was refused")
        sizes = {"proving key": "pk", "verification key": "vk", "proof": "proof"}
        return [
            Figure("time per sample", seconds / self.samples, "s"),
            Figure("setup", self.load_seconds, "s"),
            Figure("witness", self.witness_seconds, "s"),
            Figure("verification", took, "s"),
            *self.sizes(),
            *(
                Figure(name, (self.folder / file).stat().st_size, "B")
                for name, file in sizes.items()
            ),
        ]
