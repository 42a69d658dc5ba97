"""TenSEAL: a network runs on encrypted inputs, and its decrypted results are compared."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np

from onnxfde.errors import TargetError
from onnxfde.graph.encrypted_cost import depth_of
from onnxfde.graph.polynomial_network import PolynomialNetwork
from onnxfde.graph.read_polynomials import read_polynomials
from onnxfde.machines.engines.ckks_parameters import SECURITY, CkksParameters, parameters_for
from onnxfde.machines.engines.encrypted_network import MODES, PackingMode, evaluated
from onnxfde.machines.engines.seal_operations import Ciphertext, Seal, saved_bytes
from onnxfde.machines.targets.base import Figure
from onnxfde.numbers import Array
from onnxfde.running.open_files import open_model


@dataclass(frozen=True)
class CkksEngine:
    """CKKS in one of its modes."""

    mode: str

    @property
    def title(self) -> str:
        """The engine, as the heading of a table shows it."""
        return f"TenSEAL {version('tenseal')}, CKKS in {self.mode} mode, {SECURITY}"

    def loaded(self, file: Path, x: Array) -> EncryptedRun:
        """Keys, encoded weights and encrypted inputs; raises OnnxfdeError if that is impossible."""
        network = read_polynomials(open_model(file).graph)
        rows = x.reshape(len(x), -1).astype(np.float64)
        mode = MODES[self.mode]
        parameters = parameters_for(depth_of(network), *mode.slots(network, len(rows)))
        refuse_large_values(network, rows, parameters)
        start = time.perf_counter()
        seal = Seal(parameters, mode.rotations(network))
        packing = mode(seal, network)
        keys = time.perf_counter() - start
        values = packing.encrypted(rows)
        return EncryptedRun(network, seal, packing, values, len(rows),
                            keys, time.perf_counter() - start - keys)  # fmt: skip


def refuse_large_values(network: PolynomialNetwork, x: Array, parameters: CkksParameters) -> None:
    """Refuse values that the moduli have no room for."""
    largest = max(float(np.abs(values).max(initial=0.0)) for values in network.values(x))
    if not largest < parameters.largest_value:
        raise TargetError(
            f"values of {largest:.2g} occur in it, and its parameters have room for "
            f"{parameters.largest_value:,.0f}; scale its inputs"
        )


@dataclass
class EncryptedRun:
    """A network and inputs that are encrypted for it."""

    network: PolynomialNetwork
    seal: Seal
    packing: PackingMode
    values: list[Ciphertext]
    samples: int
    key_seconds: float
    encryption_seconds: float
    results: list[Ciphertext] = field(default_factory=list)

    @property
    def load_seconds(self) -> float:
        """The time to make keys and encode weights."""
        return self.key_seconds

    def run(self) -> None:
        """Evaluate the network on the ciphertexts."""
        self.seal.counts.clear()
        self.results = evaluated(self.packing, self.seal, self.network, self.values)

    def output(self) -> Array:
        """The decrypted results."""
        return self.packing.decrypted(self.results, self.samples)

    def figures(self, seconds: float) -> list[Figure]:
        """What was counted and measured beside the time of a run."""
        start = time.perf_counter()
        self.output()
        decryption = time.perf_counter() - start
        parameters, counts = self.seal.parameters, self.seal.counts
        issued = (
            "plain_multiplications", "ciphertext_multiplications", "rotations", "rescales",
        )  # fmt: skip
        ciphertexts = {"encrypted inputs": self.values, "encrypted outputs": self.results}
        return [
            Figure("time per sample", seconds / self.samples, "s"),
            Figure("encryption", self.encryption_seconds, "s"),
            Figure("decryption", decryption, "s"),
            *(Figure(name.replace("_", " "), counts[name]) for name in issued),
            Figure("levels", parameters.levels),
            Figure("ring degree", parameters.degree),
            Figure("bits of moduli", sum(parameters.moduli)),
            Figure("slots", parameters.slots),
            *(Figure(name, size, "B") for name, size in self.seal.key_bytes().items()),
            *(
                Figure(name, sum(map(saved_bytes, found)), "B")
                for name, found in ciphertexts.items()
            ),
        ]
