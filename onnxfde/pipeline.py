"""The way from file to file: `optimize` a model, and `verify` one against another.

    open model and inputs → merge neurons → fold affine maps → prove → compare → [8 bits → compare]
    → report → save

`onnxfde/README.md` walks it module by module.
"""

from __future__ import annotations

import bisect
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Unpack

from onnxfde import __version__
from onnxfde.errors import DataError
from onnxfde.graph import files
from onnxfde.graph.input_specs import InputSpec, input_specs
from onnxfde.graph.model import Graph, check
from onnxfde.graph.protos import ModelProto
from onnxfde.graph.size import count_parameters, stored_bytes
from onnxfde.graph.stamp import is_own_work, stamp
from onnxfde.inspection import why_nothing
from onnxfde.numbers import ROUNDING_STEPS, ROUNDOFF
from onnxfde.options import DEFAULT_EPS, DEFAULT_RANGE, MoreOptions, Options, Range
from onnxfde.passes.fold_affine import FoldAffine
from onnxfde.passes.merge_neurons import MergeNeurons
from onnxfde.passes.quantize import Quantize
from onnxfde.passes.result import Context, LayerChange, PassResult
from onnxfde.progress import Progress
from onnxfde.proof.certificate import Certificate, Proof
from onnxfde.report import Change, Quantized, Report
from onnxfde.running import ort_format
from onnxfde.running.input_source import InputSource
from onnxfde.running.opening import Data, Model, Source, open_data, open_model
from onnxfde.running.runtime import session_inputs
from onnxfde.running.samples import Samples
from onnxfde.running.side_by_side import Compared, SideBySide
from onnxfde.running.verification import Verification, require_equal, require_sense

EPS_LADDER = (*(2.0 ** (1 - k / 4) for k in range(97)), 0.0)
"""The caps on ε that are tried to keep a limit on the certified error: from more than any ε that
makes sense to float32's rounding, in steps of 19 %. The same whatever ε was asked for."""


@dataclass(frozen=True, eq=False)
class Result:
    """An optimized model and the report on it."""

    model: ModelProto
    report: Report
    source: Source
    samples: Samples | None
    """What it was compared on."""

    def save(self, path: str | Path) -> Report:
        """Write the model (a copy of the input if nothing changed); returns the finished report.

        A name that ends in .ort asks for onnxruntime's own format.
        """
        target, start, report = Path(path), time.perf_counter(), self.report
        if files.is_ort(target):
            ort_format.save_ort(Graph(self.model, self.source.graph.folder), target, self.samples)
            report = replace(report, bytes=Change(report.bytes.before, target.stat().st_size))
        elif report.changed or self.source.path is None:
            files.save_model(self.model, target, self.source.graph, self.source.path)
        else:
            files.copy_unchanged(self.model, self.source.path, target)
        seconds = {**report.seconds, "save": time.perf_counter() - start}
        return replace(report, output_sha256=files.sha256(target), seconds=seconds)


def optimize(
    model: Model,
    eps: float = DEFAULT_EPS,
    *,
    progress: Progress | None = None,
    **options: Unpack[MoreOptions],
) -> Result:
    """Merge neurons that do the same thing; the model given is not changed.

    `options` are the fields of `onnxfde.options.Options`, which the README explains.

    >>> from onnxfde.demo import demo_data, demo_model
    >>> result = optimize(demo_model(), eps=0.1, data=demo_data())
    >>> result.report.grp_percent < 30
    True
    """
    return optimized(model, Options.given(eps, **options), progress)


def optimized(model: Model, options: Options, progress: Progress | None = None) -> Result:
    """`optimize` with its options as one value."""
    progress = (progress or Progress()).restarted()
    with progress.timed("load"):
        run = Optimization.opened(model, options, progress)
    if not options.force and is_own_work(run.source.graph, __version__, run.settings):
        return run.untouched("onnxfde made it with these settings before")
    if options.int8:
        Quantize(options.int8).check(run.source.graph)
    result, certificate = run.proven()
    if result.changed:
        done = run.finished(result, certificate)
    else:
        reason = why_nothing(run.source.graph, result)
        if certificate is not None:
            reason = f"nothing merges within --max-certified-error {options.max_certified_error:g}"
        done = run.untouched(reason, result)
    return run.in_8_bits(done, Quantize(options.int8)) if options.int8 else done


@dataclass(frozen=True, eq=False)
class Optimization:
    """One run of `optimize`: the original, what was asked for, and what is known of the inputs."""

    source: Source
    options: Options
    context: Context
    settings: dict[str, Any]
    """Everything that has an influence on the result."""
    beside: SideBySide

    @classmethod
    def opened(cls, model: Model, options: Options, progress: Progress) -> Optimization:
        """Open the model and its inputs."""
        source = open_model(model)
        inputs, data_hash = open_data(source.graph, options.data, options.range_used)
        inputs = replace(inputs, box_given=options.input_range is not None)
        merging = asdict(MergeNeurons.of(options))
        settings = {**merging, "data": data_hash, "input_range": list(inputs.limits)}
        limit = options.max_certified_error
        if limit is not None:
            settings["max_certified_error"] = [limit, inputs.box_given]
        samples = samples_to_compare(source.graph, inputs, options.verify)
        beside = SideBySide(source.graph, samples, progress)
        memory = None if limit is None else dict[Any, Any]()
        return cls(source, options, Context(inputs, progress, memory), settings, beside)

    def proven(self) -> tuple[PassResult, Certificate | None]:
        """What the passes make, with a certificate.

        Under a limit on that, with the largest cap on ε that keeps it, or nothing at all. A count
        that was asked for is not changed.
        """
        limit = self.options.max_certified_error
        asked = True if limit is not None else self.options.certify
        proof = Proof(False if self.options.int8 else asked, limit)
        merge = MergeNeurons.of(self.options)
        found, certificate = self.tried(merge, proof)
        if certificate is None or proof.holds(certificate):
            return found, certificate
        if merge.asks_for_count or certificate.unavailable:
            raise proof.failure(certificate)
        tries: dict[float, tuple[PassResult, Certificate | None]] = {}

        def holds(cap: float) -> bool:
            if merge.capped(cap) == merge:
                return False
            tries[cap] = self.tried(merge.capped(cap), proof)
            return proof.holds(tries[cap][1])

        at = bisect.bisect_left(EPS_LADDER, True, key=holds)
        if at < len(EPS_LADDER) and tries[EPS_LADDER[at]][0].changed:
            return tries[EPS_LADDER[at]]
        layers = tuple(layer.undone() for layer in found.layers)
        return replace(found, graph=self.source.graph, layers=layers, folded=()), certificate

    def tried(self, merge: MergeNeurons, proof: Proof) -> tuple[PassResult, Certificate | None]:
        """What the passes make at one setting, and a certificate if it is wanted."""
        original, context = self.source.graph, self.context
        result = merge.apply(original, context)
        if merge.semantics == "budget" and not (merge.layers or merge.skip):
            result = result.then(FoldAffine().apply(result.graph, context))
        with context.progress.timed("certify"):
            box = context.inputs.box(original)
            return result, proof.of(original, result.graph, box, result.found)

    def compared(self, graph: Graph) -> Compared:
        """Check a model, and run it beside the original."""
        check(graph.model, "the result")
        self.context.progress.say("comparing with the original")
        with self.context.progress.timed("verify"):
            return self.beside.compare(graph)

    def finished(self, result: PassResult, certificate: Certificate | None) -> Result:
        """The result, compared and with its provenance."""
        compared = self.compared(result.graph)
        self.hold_to_promise(result, compared)
        certificate = certificate and certificate.beside(compared.before, compared.after)
        graph = self.stamped(result.graph)
        original = self.source.graph.model
        report = self.report(
            parameters=Change(count_parameters(original), count_parameters(graph.model, original)),
            bytes=Change(self.source.bytes, stored_bytes(graph)),
            layers=result.layers,
            folded=result.folded,
            refused=result.refused + result.unfolded,
            verification=compared.verification,
            certificate=certificate,
        )
        return self.result(graph.model, report)

    def hold_to_promise(self, result: PassResult, compared: Compared) -> None:
        """Raise unless what was asked to stay equal up to rounding did."""
        changed = [layer for layer in result.layers if layer.changed]
        asked = self.options.semantics == "budget" and all(map(is_lossless, changed))
        if not asked or compared.verification.unverified:
            return
        dtypes = {*(c.dtype for c in changed), *(f.dtype for f in result.folded)}
        roundoff = max(ROUNDOFF[dtype] for dtype in dtypes)
        with self.context.progress.timed("verify"):
            magnitude = self.beside.magnitudes()
            require_equal(compared.before, compared.after, magnitude, roundoff)

    def untouched(self, reason: str, result: PassResult | None = None) -> Result:
        """The input as its own result."""
        graph = self.source.graph
        count = count_parameters(graph.model)
        report = self.report(
            parameters=Change(count, count),
            bytes=Change(self.source.bytes, self.source.bytes),
            layers=result.layers if result else (),
            refused=result.refused + result.unfolded if result else (),
            unchanged=reason,
        )
        return self.result(graph.copied().model, report)

    def in_8_bits(self, done: Result, quantize: Quantize) -> Result:
        """A result in 8 bits, compared with the original again."""
        before = done.report
        result = quantize.apply(Graph(done.model, self.source.graph.folder), self.context)
        graph = self.stamped(result.graph)
        compared = self.compared(graph)
        require_sense(compared.verification, before.verification, compared.before, compared.after)
        found = Quantized(
            mode=quantize.mode,
            weights=result.small_weights,
            bytes=Change(before.bytes.after, stored_bytes(graph)),
            merged=before.verification,
            unmerged=before.unchanged,
        )
        report = replace(
            before,
            bytes=Change(before.bytes.before, found.bytes.after),
            verification=compared.verification,
            int8=found,
            unchanged=None,
            seconds=dict(self.context.progress.seconds),
        )
        return self.result(graph.model, report)

    def stamped(self, graph: Graph) -> Graph:
        """A copy that says what made it."""
        copy = graph.copied()
        stamp(copy, __version__, self.settings)
        return copy

    def report(self, **findings: Any) -> Report:
        """A report on this run."""
        return Report(
            version=__version__,
            settings=self.settings,
            input_sha256=self.source.sha256,
            seconds=dict(self.context.progress.seconds),
            **findings,
        )

    def result(self, model: ModelProto, report: Report) -> Result:
        """A result of this run."""
        samples = self.beside.samples
        return Result(model, report, self.source, None if isinstance(samples, str) else samples)


def samples_to_compare(graph: Graph, inputs: InputSource, wanted: bool) -> Samples | str:
    """What to run models on, or why they are not run."""
    if not wanted:
        return "verification was switched off"
    try:
        return inputs.verification_samples(graph)
    except DataError as reason:
        return str(reason)


def is_lossless(layer: LayerChange) -> bool:
    """Whether a layer was asked to stay equal up to rounding."""
    return layer.eps is not None and layer.eps < ROUNDING_STEPS * ROUNDOFF[layer.dtype]


def verify(
    model: Model,
    other: Model,
    *,
    data: Data | None = None,
    input_range: Range = DEFAULT_RANGE,
    progress: Progress | None = None,
) -> Verification:
    """Optimization two models on the same inputs and measure how far apart they are.

    >>> from onnxfde.demo import demo_model
    >>> verify(demo_model(), demo_model()).max_abs_error
    0.0
    """
    first, second = open_model(model).graph, opened(other)
    specs = session_inputs(second) if isinstance(second, Path) else input_specs(second)
    if signature(input_specs(first)) != signature(specs):
        names = [", ".join(map(str, found)) for found in (input_specs(first), specs)]
        raise DataError(f"the two models have different inputs: {names[0]} and {names[1]}")
    inputs, _ = open_data(first, data, input_range)
    samples = inputs.verification_samples(first)
    return SideBySide(first, samples, progress or Progress()).compare(second).verification


def opened(model: Model) -> Graph | Path:
    """A model, or a file in onnxruntime's own format."""
    if isinstance(model, str | Path) and files.is_ort(model):
        return Path(model)
    return open_model(model).graph


def signature(specs: tuple[InputSpec, ...]) -> list[tuple[object, ...]]:
    """The inputs of a model, whatever its symbolic axes are called."""
    return [
        (spec.name, spec.dtype, *(d if isinstance(d, int) else None for d in spec.dims))
        for spec in specs
    ]
