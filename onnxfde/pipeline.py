"""file → layers → merge order or partition → quotient → graph edit → checker + onnxruntime → report.

The three things one can do with a model, for Python and for the command line: `optimize` it,
`inspect` it, and `verify` one against another.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxfde import __version__, files
from onnxfde.budget import ROUNDING_STEPS
from onnxfde.distance import Norm, Relation
from onnxfde.errors import DataError
from onnxfde.graph import (
    ROUNDOFF,
    Graph,
    ModelProto,
    check,
    copy_of,
    count_parameters,
    external_tensors,
    locate,
    read_model,
)
from onnxfde.inputs import (
    Range,
    Samples,
    check_range,
    input_specs,
    load_samples,
    make_samples,
    random_samples,
)
from onnxfde.lumping import Linkage
from onnxfde.passes.base import LayerChange, PassResult, Work
from onnxfde.passes.merge_neurons import (
    DEFAULT_EPS,
    MergeNeurons,
    Quotient,
    Semantics,
    budget_search,
)
from onnxfde.pattern import Refusal, find_layers, op
from onnxfde.probe import Probe
from onnxfde.provenance import is_own_work, stamp
from onnxfde.report import Change, Report
from onnxfde.verification import Verification, compare, require_equal

Model = str | Path | ModelProto
Data = str | Path | Mapping[str, npt.NDArray[Any]]

DEFAULT_RANGE = (-1.0, 1.0)
VERIFIED_ROWS = 1024
LADDER = (0.0, 0.01, 0.03, 0.1, 0.2, 0.3)
ACTIVATIONS = (
    "Relu", "LeakyRelu", "PRelu", "Sigmoid", "Tanh", "Gelu", "Erf", "Softplus", "Elu", "HardSwish",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Source:
    """A model to work on and, if it came from a file, that file."""

    graph: Graph
    path: Path | None
    sha256: str

    @property
    def bytes(self) -> int:
        """Bytes of the model with its external weights."""
        return stored_bytes(self.graph)


@dataclass(frozen=True, eq=False)
class Result:
    """An optimized model and the report on it."""

    model: ModelProto
    report: Report
    source: Source

    def save(self, path: str | Path) -> Report:
        """Write the model (a copy of the input if nothing changed); returns the finished report."""
        target, start = Path(path), time.perf_counter()
        if self.report.changed or self.source.path is None:
            files.save(self.model, target, self.source.graph)
        else:
            files.copy_unchanged(self.model, self.source.path, target)
        seconds = {**self.report.seconds, "save": time.perf_counter() - start}
        return replace(self.report, output_sha256=files.sha256(target), seconds=seconds)


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
    data: Data | None = None,
    input_range: Range = DEFAULT_RANGE,
    verify: bool = True,
    force: bool = False,
    work: Work | None = None,
) -> Result:
    """Merge neurons that do the same thing; the model given is not changed.

    >>> from onnxfde.demo import demo_data, demo_model
    >>> result = optimize(demo_model(), eps=0.1, data=demo_data())
    >>> result.report.grp_percent < 30
    True
    """
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
    )
    work = work or Work()
    with work.timed("load"):
        source = open_model(model)
        probe, data_hash = open_data(source.graph, data, input_range)
    settings = {**asdict(merge), "data": data_hash, "input_range": list(probe.limits)}
    if not force and is_own_work(source.graph, settings):
        return untouched(source, settings, work, "onnxfde made it with these settings before")
    result = merge.apply(source.graph, probe, work)
    if not result.changed:
        return untouched(source, settings, work, why_nothing(source.graph, result), result)
    return finished(source, result, settings, work, verified(source, result, probe, merge, work, verify))


def open_model(model: Model) -> Source:
    """Read and check a model, from a file or from memory."""
    if isinstance(model, ModelProto):
        check(model, "the model")
        raw = hashlib.sha256(model.SerializeToString())
        return Source(Graph(model), None, raw.hexdigest())
    path = Path(model)
    proto = read_model(path)
    for tensor in external_tensors(proto):
        locate(tensor, path.parent)
    check(proto, str(path))
    return Source(Graph(proto, path.parent), path, files.sha256(path))


def open_data(graph: Graph, data: Data | None, limits: Range) -> tuple[Probe, str | None]:
    """Where inputs come from, and a hash of the data."""
    limits = check_range(limits)
    if data is None:
        return Probe(limits), None
    specs = input_specs(graph)
    if isinstance(data, Mapping):
        samples, digest = make_samples(data, specs, "the data"), hashlib.sha256()
        for name in sorted(data):
            digest.update(np.ascontiguousarray(data[name]).tobytes())
        return Probe(limits, samples), digest.hexdigest()
    return Probe(limits, load_samples(Path(data), specs)), files.sha256(Path(data))


def stored_bytes(graph: Graph) -> int:
    """Bytes of a model with its external weights."""
    outside = (locate(t, graph.folder or Path()).length for t in external_tensors(graph.model))
    return int(graph.model.ByteSize()) + sum(outside)


def verified(
    source: Source, result: PassResult, probe: Probe, merge: MergeNeurons, work: Work, wanted: bool
) -> Verification:
    """Check the result, run it beside the original, and hold it to what was promised."""
    check(result.model, "the result")
    if not wanted:
        return Verification(unverified="verification was switched off")
    work.say("comparing with the original")
    with work.timed("verify"):
        try:
            samples = verification_samples(source.graph, probe)
        except DataError as reason:
            return Verification(unverified=str(reason))
        after = Graph(result.model, source.graph.folder)
        verification, old, new = compare(source.graph, after, samples, work.tick)
        changed = [layer for layer in result.layers if layer.changed]
        if verification.unverified is None and merge.semantics == "budget" and all(map(lossless, changed)):
            roundoff = max(ROUNDOFF[layer.dtype] for layer in changed)
            require_equal(source.graph, samples, old, new, roundoff)
    return verification


def lossless(layer: LayerChange) -> bool:
    """Whether a layer was asked to stay equal up to rounding."""
    return layer.eps is not None and layer.eps < ROUNDING_STEPS * ROUNDOFF[layer.dtype]


def verification_samples(graph: Graph, probe: Probe) -> Samples:
    """The data, or random inputs in the range (not those that the metric was measured on)."""
    if probe.data is not None:
        return probe.data
    return random_samples(input_specs(graph), probe.limits, VERIFIED_ROWS, seed=1)


def finished(
    source: Source,
    result: PassResult,
    settings: dict[str, Any],
    work: Work,
    verification: Verification,
) -> Result:
    """The result with its provenance and its report."""
    model = copy_of(result.model)
    graph = Graph(model, source.graph.folder)
    stamp(model, graph, __version__, settings)
    original = source.graph.model
    report = Report(
        version=__version__,
        settings=settings,
        input_sha256=source.sha256,
        parameters=Change(count_parameters(original), count_parameters(model, original)),
        bytes=Change(source.bytes, stored_bytes(graph)),
        layers=result.layers,
        refused=result.refused,
        verification=verification,
        seconds=work.seconds,
    )
    return Result(model, report, source)


def untouched(
    source: Source,
    settings: dict[str, Any],
    work: Work,
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
        seconds=work.seconds,
        unchanged=reason,
    )
    return Result(copy_of(model), report, source)


def why_nothing(graph: Graph, result: PassResult) -> str:
    """One sentence on why nothing was merged."""
    if result.layers:
        useful = [layer.useful_eps for layer in result.layers if layer.useful_eps is not None]
        hint = f"; the smallest useful ε is {rounded_up(min(useful))}" if useful else ""
        return f"no neurons merge at this setting{hint}"
    if result.refused:
        return f"none of the {len(result.refused)} square activations can be merged (see the reasons)"
    if find_layers(graph)[0]:
        return "no layer is selected"
    found = Counter(op(n) for n in graph.model.graph.node if op(n) in ACTIVATIONS)
    others = ", ".join(f"{count} × {name}" for name, count in found.items())
    has = f"; its activations are {others}" if others else ""
    return f"the model has no square activation (Mul(x, x) or Pow(x, 2)) between affine maps{has}"


def rounded_up(eps: float) -> str:
    """A number that is certainly not below ε, with three digits."""
    if eps == 0:
        return "0"
    unit = 10.0 ** (np.floor(np.log10(eps)) - 2)
    return f"{np.ceil(eps / unit) * unit:.3g}"


@dataclass(frozen=True)
class LayerView:
    """A layer as `inspect` shows it."""

    name: str
    inputs: int
    neurons: int
    outputs: int
    parameters: int
    lossless: int
    neurons_at: dict[float, int]
    remark: str | None = None


@dataclass(frozen=True)
class Inspection:
    """The layers of a model and its near misses."""

    layers: tuple[LayerView, ...]
    refused: tuple[Refusal, ...]
    parameters: int
    nothing: str | None = None
    """Why there is no layer, if there is none."""


def inspect(
    model: Model,
    *,
    data: Data | None = None,
    input_range: Range = DEFAULT_RANGE,
    work: Work | None = None,
) -> Inspection:
    """Find layers and what could be merged in them.

    >>> from onnxfde.demo import demo_model
    >>> [layer.neurons for layer in inspect(demo_model(), input_range=(0, 1)).layers]
    [120]
    """
    work = work or Work()
    source = open_model(model)
    probe, _ = open_data(source.graph, data, input_range)
    matches, refused = find_layers(source.graph)
    views = []
    for match in matches:
        work.say(match.name)
        inputs = probe.layer_inputs(source.graph, match, work.tick)
        search = budget_search(match, inputs, "refit")
        layer = match.layer
        left = {}
        for eps in LADDER:
            found = search.within(eps)
            left[eps] = len(found.blocks) if found else layer.neurons
        views.append(
            LayerView(
                match.name, layer.inputs, layer.neurons, layer.outputs, layer.parameters,
                left[0.0], left, inputs.remark,
            )
        )  # fmt: skip
    nothing = None if matches else why_nothing(source.graph, PassResult(source.graph.model, (), tuple(refused)))
    return Inspection(tuple(views), tuple(refused), count_parameters(source.graph.model), nothing)


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
    work = work or Work()
    first, second = open_model(model), open_model(other)
    if input_specs(first.graph) != input_specs(second.graph):
        names = [", ".join(s.name for s in input_specs(m.graph)) for m in (first, second)]
        raise DataError(f"the two models have different inputs: {names[0]} and {names[1]}")
    probe, _ = open_data(first.graph, data, input_range)
    samples = verification_samples(first.graph, probe)
    return compare(first.graph, second.graph, samples, work.tick)[0]
