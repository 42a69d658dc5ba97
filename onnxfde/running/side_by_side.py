"""Models run beside the original, all on the same inputs; the original is run once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from onnxfde.errors import RuntimeUnavailable, VerificationError
from onnxfde.graph.magnitude import magnitude_model
from onnxfde.graph.model import Graph
from onnxfde.numbers import Array
from onnxfde.progress import Progress
from onnxfde.running.runtime import (
    ONNXRUNTIME,
    Runner,
    load,
    load_file,
    onnxruntime_runner,
    run_all,
)
from onnxfde.running.samples import Samples
from onnxfde.running.verification import Verification, measure


@dataclass(frozen=True, eq=False)
class Compared:
    """What running a model beside the original showed, and the outputs of both."""

    verification: Verification
    before: list[Array] = field(default_factory=list)
    after: list[Array] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Executed:
    """The outputs of a model and the engine that made them."""

    engine: str
    outputs: list[Array]


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Runs models beside the original."""

    original: Graph
    samples: Samples | str
    """What to run them on, or why they are not run."""
    progress: Progress = field(default_factory=Progress)

    def compare(self, result: Graph | Path) -> Compared:
        """Run another model; a path is one in onnxruntime's own format."""
        if isinstance(self.samples, str):
            return Compared(Verification(unverified=self.samples))
        before = self._original
        if isinstance(before, str):
            return Compared(Verification(unverified=before, source=self.samples.source))
        try:
            runner = loaded(result, before.engine)
            after = run_all(runner, self.samples, self.progress)
        except RuntimeUnavailable as reason:
            raise VerificationError(
                f"the result does not run although the original does: {reason}"
            ) from None
        require_shapes(before.outputs, after)
        found = measure(before.outputs, after, self.samples, runner.engine)
        return Compared(found, before.outputs, after)

    def magnitudes(self) -> list[Array] | None:
        """A(x) for every output of the original, where all its operators have a rule for it."""
        model = magnitude_model(self.original)
        if model is None or isinstance(self.samples, str):
            return None
        positive = {name: np.abs(a) for name, a in self.samples.arrays.items()}
        samples = Samples(self.samples.specs, positive, self.samples.source)
        try:
            return run_all(load(model, self.original.folder), samples)
        except RuntimeUnavailable:
            return None

    @cached_property
    def _original(self) -> Executed | str:
        """What the original makes of the samples, or why it cannot be run."""
        assert isinstance(self.samples, Samples)
        try:
            runner = load(self.original.model, self.original.folder)
            return Executed(runner.engine, run_all(runner, self.samples, self.progress))
        except RuntimeUnavailable as reason:
            return str(reason)


def loaded(result: Graph | Path, engine: str) -> Runner:
    """Load a model that must run in onnxruntime if its original does."""
    if isinstance(result, Path):
        return load_file(result)
    if engine == ONNXRUNTIME:
        return Runner(onnxruntime_runner(result.model, result.folder), engine)
    return load(result.model, result.folder)


def require_shapes(before: list[Array], after: list[Array]) -> None:
    """Raise unless the outputs of two models can be compared element by element."""
    shapes = [", ".join(str(a.shape) for a in outputs) for outputs in (before, after)]
    if shapes[0] != shapes[1]:
        raise VerificationError(f"the outputs have different shapes: {shapes[0]} and {shapes[1]}")
