"""file → layers → fewer neurons → graph edit → affine maps folded → certificate → comparison.

Then, if asked for, 8 bits and a comparison again.

`optimize` a model, and `verify` one against another.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from onnxfde import __version__
from onnxfde.errors import DataError
from onnxfde.graph import files
from onnxfde.graph.input_specs import InputSpec, input_specs
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.graph.size import count_parameters, stored_bytes
from onnxfde.graph.stamp import is_own_work, stamp
from onnxfde.graph.tensors import copy_of
from onnxfde.inspection import why_nothing
from onnxfde.neurons.block_search import ROUNDING_STEPS
from onnxfde.numbers import ROUNDOFF
from onnxfde.options import (
    DEFAULT_EPS,
    DEFAULT_RANGE,
    DEFAULT_SEED,
    Int8,
    Linkage,
    Norm,
    Quotient,
    Relation,
    Semantics,
)
from onnxfde.passes.fold_affine import FoldAffine
from onnxfde.passes.merge_neurons import MergeNeurons
from onnxfde.passes.result import LayerChange, PassResult
from onnxfde.progress import Work
from onnxfde.proof.certificate import Certificate, Proof
from onnxfde.report import Change, Quantized, Report
from onnxfde.running import ort_format as ortformat
from onnxfde.running.int8 import check_options, quantize, refuse, small_weights
from onnxfde.running.layer_inputs import Probe
from onnxfde.running.opening import Data, Model, Source, open_data, open_model, verification_samples
from onnxfde.running.runtime import session_inputs
from onnxfde.running.samples import Range
from onnxfde.running.side_by_side import Compared, Trial
from onnxfde.running.verification import Verification, compare, require_equal, require_sense

SMALLER = (*(2.0 ** (-k / 2) for k in range(1, 48)), 0.0)
"""What ε is multiplied with until a limit on the certified error is kept."""


@dataclass(frozen=True, eq=False)
class Result:
    """An optimized model and the report on it."""

    model: ModelProto
    report: Report
    source: Source
    trial: Trial

    def save(self, path: str | Path) -> Report:
        """Write the model (a copy of the input if nothing changed); returns the finished report.

        A name that ends in .ort asks for onnxruntime's own format.
        """
        target, start, report = Path(path), time.perf_counter(), self.report
        if files.is_ort(target):
            graph, samples = Graph(self.model, self.source.graph.folder), self.trial.samples
            ortformat.save(graph, target, None if isinstance(samples, str) else samples)
            report = replace(report, bytes=Change(report.bytes.before, target.stat().st_size))
        elif report.changed or self.source.path is None:
            files.save(self.model, target, self.source.graph, self.source.path)
        else:
            files.copy_unchanged(self.model, self.source.path, target)
        seconds = {**report.seconds, "save": time.perf_counter() - start}
        return replace(report, output_sha256=files.sha256(target), seconds=seconds)


def optimize(
    model: Model,
    eps: float = DEFAULT_EPS,
    *,
    layer_eps: Mapping[str, float] | None = None,
    neurons: int | None = None,
    keep: float | None = None,
    semantics: Semantics = "budget",
    quotient: Quotient | None = None,
    relation: Relation = "forward",
    norm: Norm = "sum",
    linkage: Linkage = "closure",
    layers: tuple[str, ...] = (),
    skip: tuple[str, ...] = (),
    seed: int = DEFAULT_SEED,
    data: Data | None = None,
    input_range: Range | None = None,
    verify: bool = True,
    certify: bool | None = None,
    max_certified_error: float | None = None,
    int8: Int8 | None = None,
    force: bool = False,
    work: Work | None = None,
) -> Result:
    """Merge neurons that do the same thing; the model given is not changed.

    The change of every output is certified for all inputs in the range, else in that of the data,
    when that is cheap, or `certify` is true; with `max_certified_error` as much is merged as keeps
    it below. `int8` rounds weights and values to 8 bits afterwards.

    >>> from onnxfde.demo import demo_data, demo_model
    >>> result = optimize(demo_model(), eps=0.1, data=demo_data())
    >>> result.report.grp_percent < 30
    True
    """
    layers, skip = ((globs,) if isinstance(globs, str) else globs for globs in (layers, skip))
    merge = MergeNeurons(
        eps=eps,
        layer_eps=tuple(sorted((layer_eps or {}).items())),
        neurons=neurons,
        keep=keep,
        semantics=semantics,
        quotient=quotient,
        relation=relation,
        norm=norm,
        linkage=linkage,
        layers=tuple(layers),
        skip=tuple(skip),
        seed=seed,
        int8=int8,
    )
    check_options(int8, data, certify, max_certified_error)
    proof = Proof.asked(False if int8 else certify, max_certified_error)
    work = work or Work()
    with work.timed("load"):
        source = open_model(model)
        probe, data_hash = open_data(source.graph, data, input_range or DEFAULT_RANGE)
        probe = replace(probe, box_given=input_range is not None)
        trial = Trial(source.graph, probe, verify, work)
    settings = {**asdict(merge), "data": data_hash, "input_range": list(probe.limits)}
    if max_certified_error is not None:
        settings["max_certified_error"] = [max_certified_error, probe.box_given]
    if not force and is_own_work(source.graph, settings):
        return untouched(source, settings, trial, "onnxfde made it with these settings before")
    if int8:
        refuse(source.graph)
    result, certificate = proven(source.graph, merge, probe, proof, work)
    if result.changed:
        compared = trial.of(result.model)
        hold_to_promise(result, merge, trial, compared)
        certificate = certificate and certificate.beside(compared.before, compared.after)
        done = finished(source, result, settings, trial, compared.verification, certificate)
    else:
        reason = why_nothing(source.graph, result)
        if certificate is not None:
            reason = f"nothing merges within --max-certified-error {proof.limit:g}"
        done = untouched(source, settings, trial, reason, result)
    return in_8_bits(done, int8) if int8 else done


def in_8_bits(done: Result, mode: Int8) -> Result:
    """A result in 8 bits, compared with the original again."""
    trial, before = done.trial, done.report
    trial.work.say("rounding to 8 bits")
    with trial.work.timed("int8"):
        folder = trial.original.folder
        model = quantize(Graph(done.model, folder), mode, trial.probe.data)
        graph = stamped(model, folder, before.settings)
    found = Quantized(
        mode=mode,
        weights=small_weights(model),
        bytes=Change(before.bytes.after, stored_bytes(graph)),
        merged=before.verification,
        unmerged=before.unchanged,
    )
    compared = trial.of(graph.model)
    require_sense(compared.verification, before.verification, *compared[1:])
    report = replace(
        before,
        bytes=Change(before.bytes.before, found.bytes.after),
        verification=compared.verification,
        int8=found,
        unchanged=None,
    )
    return replace(done, model=graph.model, report=report)


def passes(graph: Graph, merge: MergeNeurons, probe: Probe, work: Work) -> PassResult:
    """Merge, then fold affine maps side by side, unless only some layers are to be touched.

    Nor in a comparison with the paper.
    """
    merged = merge.apply(graph, probe, work)
    if merge.semantics != "budget" or merge.layers or merge.skip:
        return merged
    folded = FoldAffine().apply(Graph(merged.model, graph.folder), work)
    return replace(merged, model=folded.model, folded=folded.folded)


def proven(
    graph: Graph, merge: MergeNeurons, probe: Probe, proof: Proof, work: Work
) -> tuple[PassResult, Certificate | None]:
    """What the passes make, with a certificate.

    Under a limit on that, with the largest ε among SMALLER that keeps it, or nothing at all. A
    count that was asked for is not changed.
    """

    def tried(merge: MergeNeurons) -> tuple[PassResult, Certificate | None]:
        result = passes(graph, merge, probe, work)
        with work.timed("certify"):
            return result, proof.of(graph, Graph(result.model, graph.folder), probe.box(graph))

    found, certificate = tried(merge)
    if certificate is None or proof.holds(certificate):
        return found, certificate
    if merge.neurons is not None or merge.keep is not None or certificate.unavailable:
        raise proof.failure(certificate)
    tries: dict[float, tuple[PassResult, Certificate | None]] = {}

    def holds(factor: float) -> bool:
        tries[factor] = tried(merge.scaled(factor))
        return proof.holds(tries[factor][1])

    at = bisect.bisect_left(SMALLER, True, key=holds)
    if at == len(SMALLER) or not tries[SMALLER[at]][0].changed:
        return PassResult(graph.model, (), found.refused), certificate
    return tries[SMALLER[at]]


def hold_to_promise(
    result: PassResult, merge: MergeNeurons, trial: Trial, compared: Compared
) -> None:
    """Raise unless what was asked to stay equal up to rounding did."""
    changed = [layer for layer in result.layers if layer.changed]
    asked = merge.semantics == "budget" and all(map(lossless, changed))
    if not asked or compared.verification.unverified or isinstance(trial.samples, str):
        return
    dtypes = {*(c.dtype for c in changed), *(f.dtype for f in result.folded)}
    roundoff = max(ROUNDOFF[dtype] for dtype in dtypes)
    with trial.work.timed("verify"):
        require_equal(trial.original, trial.samples, *compared[1:], roundoff)


def lossless(layer: LayerChange) -> bool:
    """Whether a layer was asked to stay equal up to rounding."""
    return layer.eps is not None and layer.eps < ROUNDING_STEPS * ROUNDOFF[layer.dtype]


def stamped(model: ModelProto, folder: Path | None, settings: dict[str, Any]) -> Graph:
    """A copy that says what made it."""
    graph = Graph(copy_of(model), folder)
    stamp(graph.model, graph, __version__, settings)
    return graph


def finished(
    source: Source,
    result: PassResult,
    settings: dict[str, Any],
    trial: Trial,
    verification: Verification,
    certificate: Certificate | None,
) -> Result:
    """The result with its provenance and its report."""
    graph, original = stamped(result.model, source.graph.folder, settings), source.graph.model
    report = Report(
        version=__version__,
        settings=settings,
        input_sha256=source.sha256,
        parameters=Change(count_parameters(original), count_parameters(graph.model, original)),
        bytes=Change(source.bytes, stored_bytes(graph)),
        layers=result.layers,
        folded=result.folded,
        refused=result.refused,
        verification=verification,
        certificate=certificate,
        seconds=trial.work.seconds,
    )
    return Result(graph.model, report, source, trial)


def untouched(
    source: Source,
    settings: dict[str, Any],
    trial: Trial,
    reason: str,
    result: PassResult | None = None,
) -> Result:
    """The input as its own result."""
    model = source.graph.model
    count = count_parameters(model)
    report = Report(
        version=__version__,
        settings=settings,
        input_sha256=source.sha256,
        parameters=Change(count, count),
        bytes=Change(source.bytes, source.bytes),
        layers=result.layers if result else (),
        refused=result.refused if result else (),
        seconds=trial.work.seconds,
        unchanged=reason,
    )
    return Result(copy_of(model), report, source, trial)


def verify(
    model: Model,
    other: Model,
    *,
    data: Data | None = None,
    input_range: Range = DEFAULT_RANGE,
    work: Work | None = None,
) -> Verification:
    """Run two models on the same inputs and measure how far apart they are.

    >>> from onnxfde.demo import demo_model
    >>> verify(demo_model(), demo_model()).max_abs_error
    0.0
    """
    work, first = work or Work(), open_model(model)
    second = opened(other)
    specs = session_inputs(second) if isinstance(second, Path) else input_specs(second)
    if signature(input_specs(first.graph)) != signature(specs):
        names = [", ".join(map(str, found)) for found in (input_specs(first.graph), specs)]
        raise DataError(f"the two models have different inputs: {names[0]} and {names[1]}")
    probe, _ = open_data(first.graph, data, input_range)
    samples = verification_samples(first.graph, probe)
    return compare(first.graph, second, samples, work.tick)[0]


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
