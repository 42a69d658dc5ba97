"""Models run beside the original, all on the same inputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from onnxfde.errors import DataError
from onnxfde.graph.model import Graph, check
from onnxfde.graph.protos import ModelProto
from onnxfde.numbers import Array
from onnxfde.progress import Work
from onnxfde.running.layer_inputs import Probe
from onnxfde.running.opening import verification_samples
from onnxfde.running.samples import Samples
from onnxfde.running.verification import Verification, compare


class Compared(NamedTuple):
    """What running a model beside the original showed, and the outputs of both."""

    verification: Verification
    before: list[Array]
    after: list[Array]


@dataclass(frozen=True, eq=False)
class Trial:
    """Runs models beside the original, all on the same inputs."""

    original: Graph
    probe: Probe
    wanted: bool
    work: Work

    @cached_property
    def samples(self) -> Samples | str:
        """What to run them on, or why they are not run."""
        if not self.wanted:
            return "verification was switched off"
        try:
            return verification_samples(self.original, self.probe)
        except DataError as reason:
            return str(reason)

    def of(self, model: ModelProto) -> Compared:
        """Check a model, and run it."""
        check(model, "the result")
        if isinstance(self.samples, str):
            return Compared(Verification(unverified=self.samples), [], [])
        self.work.say("comparing with the original")
        with self.work.timed("verify"):
            graph = Graph(model, self.original.folder)
            return Compared(*compare(self.original, graph, self.samples, self.work.tick))
