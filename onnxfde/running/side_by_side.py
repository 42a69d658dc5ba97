"""Runs models beside the original on the same inputs; the original is run only once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from onnxfde.errors import DataError, RunStopped, RuntimeUnavailable, VerificationError
from onnxfde.graph.input_specs import InputSpec, input_specs
from onnxfde.graph.magnitude import magnitude_model
from onnxfde.graph.model import Graph
from onnxfde.numbers import Array
from onnxfde.progress import Progress
from onnxfde.running.outputs import Output, is_floating
from onnxfde.running.run_clock import RunClock
from onnxfde.running.runtime import (
    CONSTANTS_BEFORE_RUNS,
    ONNXRUNTIME,
    Runner,
    load,
    load_file,
    onnxruntime_runner,
    run_all,
    session_interface,
)
from onnxfde.running.samples import Samples
from onnxfde.running.verification import Compared, Verification, measure


@dataclass(frozen=True, eq=False)
class Executed:
    """The outputs of a model and the engine that computed them."""

    engine: str
    outputs: list[Output]


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Compares models with the original."""

    original: Graph
    samples: Samples | str
    """The inputs of all models, or the reason why they are not run."""
    progress: Progress = field(default_factory=Progress)
    clock: RunClock = field(default_factory=RunClock)
    """How long the models may run."""

    def compare(self, result: Graph | Path) -> Compared:
        """Run a model and compare; a path is a file in onnxruntime's own format."""
        if isinstance(self.samples, str):
            return Compared(Verification(unverified=self.samples))
        if not self.original.model.graph.output:
            return Compared(Verification(unverified="the model has no outputs"))
        if not self.samples.runs:
            reason = f"{self.samples.source} gives no inputs to run the models on"
            return Compared(Verification(unverified=reason))
        before = self._original
        if isinstance(before, str):
            return Compared(Verification(unverified=before, source=self.samples.source))
        try:
            runner = loaded(result, before.engine)
            after = self._outputs(runner, self.samples)
        except RunStopped as reason:
            text = f"the result takes much longer than the original ({reason})"
            return Compared(Verification(unverified=text, source=self.samples.source))
        except RuntimeUnavailable as reason:
            raise VerificationError(
                f"the result does not run although the original does: {reason}"
            ) from None
        require_shapes(before.outputs, after)
        names = [value.name for value in self.original.model.graph.output]
        return measure(names, before.outputs, after, self.samples, runner.engine)

    def magnitudes(self) -> list[Array] | None:
        """A(x) of every output of the original; None if an operator has no rule for it."""
        model = magnitude_model(self.original)
        if model is None or isinstance(self.samples, str):
            return None
        samples = replace(self.samples, absolute=True, labels=None)
        try:
            runner = load(model, self.original.folder, CONSTANTS_BEFORE_RUNS)
            found = [output.values for output in self._outputs(runner, samples)]
        except RuntimeUnavailable:
            return None
        before = self._original
        fits = isinstance(before, Executed) and all(
            a.shape == b.values.shape for a, b in zip(found, before.outputs, strict=True)
        )
        return found if fits else None

    @cached_property
    def _original(self) -> Executed | str:
        """The outputs of the original, or the reason why it cannot be run."""
        assert isinstance(self.samples, Samples)
        try:
            runner = load(self.original.model, self.original.folder)
            return Executed(runner.engine, self._outputs(runner, self.samples))
        except RuntimeUnavailable as reason:
            return str(reason)

    def _outputs(self, runner: Runner, samples: Samples) -> list[Output]:
        with self.clock.watching(runner.stop, samples.work, samples.runs):
            return run_all(runner, samples, self.progress)


def loaded(result: Graph | Path, engine: str) -> Runner:
    """Load a model, which must run in onnxruntime if the original does."""
    if isinstance(result, Path):
        return load_file(result)
    if engine == ONNXRUNTIME:
        return onnxruntime_runner(result.model, result.folder)
    return load(result.model, result.folder)


def require_shapes(before: list[Output], after: list[Output]) -> None:
    """Raise unless the outputs of two models can be compared element by element."""
    pairs = list(zip(before, after, strict=True))
    kinds = [", ".join(a.values.dtype.name for a in outputs) for outputs in (before, after)]
    if any(is_floating(a.values) != is_floating(b.values) for a, b in pairs):
        raise VerificationError(f"the outputs have different types: {kinds[0]} and {kinds[1]}")
    shapes = [", ".join(str(a.values.shape) for a in outputs) for outputs in (before, after)]
    if shapes[0] != shapes[1]:
        raise VerificationError(f"the outputs have different shapes: {shapes[0]} and {shapes[1]}")
    if any(a.structure != b.structure for a, b in pairs):
        raise VerificationError("a sequence or map in the outputs has other keys or lengths")


def require_same_interface(first: Graph, second: Graph | Path) -> None:
    """Raise unless two models take the same inputs, and their outputs have the same names."""
    (own, own_names), (others, other_names) = interface(first), interface(second)
    if signature(own) != signature(others):
        texts = [", ".join(map(str, specs)) for specs in (own, others)]
        raise DataError(f"the two models have different inputs: {texts[0]} and {texts[1]}")
    if own_names != other_names:
        texts = [", ".join(names) for names in (own_names, other_names)]
        raise DataError(f"the two models have different outputs: {texts[0]} and {texts[1]}")


def interface(model: Graph | Path) -> tuple[tuple[InputSpec, ...], list[str]]:
    """The inputs of a model, and the names of its outputs."""
    if isinstance(model, Path):
        return session_interface(model)
    return input_specs(model), [value.name for value in model.model.graph.output]


def signature(specs: tuple[InputSpec, ...]) -> list[tuple[object, ...]]:
    """Names, types and fixed lengths of inputs; the names of free axes do not count."""
    return [
        (spec.name, spec.dtype, *(d if isinstance(d, int) else None for d in spec.dims))
        for spec in specs
    ]
