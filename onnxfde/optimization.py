"""One run of `optimize`, and its result.

merge neurons → fold affine maps → certify → compare with the original
→ [round to 8 bits → compare again] → report → save

A merged model that fails the comparison is merged again at ε = 0; if that fails too, the original
is the result.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from onnxfde import __version__
from onnxfde.deadline import Deadline
from onnxfde.errors import DataError, GoalMissed, VerificationError, after_writing
from onnxfde.goals import judged_goal, latency_of, written_goal
from onnxfde.graph import files
from onnxfde.graph.drafts import write_text
from onnxfde.graph.encrypted_cost import encrypted_cost
from onnxfde.graph.find_axes import find_axes
from onnxfde.graph.large_files import whole_model
from onnxfde.graph.model import Graph
from onnxfde.graph.new_files import NewFiles
from onnxfde.graph.onnx_calls import check
from onnxfde.graph.overwriting import check_reports
from onnxfde.graph.protos import ModelProto
from onnxfde.graph.saving import saving, write_changed, write_copy
from onnxfde.graph.size import count_parameters, stored_bytes
from onnxfde.graph.stamp import stamp, stamp_bytes
from onnxfde.inspection import why_nothing
from onnxfde.limits import LOSS_GOALS
from onnxfde.numbers import ROUNDING_STEPS, ROUNDOFF
from onnxfde.options import MergeOptions, Options
from onnxfde.passes.certified_merging import CertifiedMerging, CertifiedResult
from onnxfde.passes.merge_channels import inputs_to_fit
from onnxfde.passes.quantize import Quantize
from onnxfde.passes.result import Context, LayerChange, PassResult
from onnxfde.progress import Progress
from onnxfde.report import Change, EncryptedChange, Quantized, Report
from onnxfde.running import ort_format
from onnxfde.running.input_source import InputSource
from onnxfde.running.label_scores import unused_labels
from onnxfde.running.open_files import Model, Source, open_data, open_model
from onnxfde.running.samples import Samples
from onnxfde.running.seen_shapes import multiply_adds_of_one
from onnxfde.running.side_by_side import SideBySide
from onnxfde.running.verification import Compared, require_equal, require_sense


@dataclass(frozen=True, eq=False)
class Result:
    """An optimized model and the report on it."""

    kept: ModelProto
    """The model; large tensors may still be in the file of the original."""
    report: Report
    source: Source
    draw_samples: Callable[[], Samples | None]
    """Gives the inputs on which models are compared; None if they are not."""
    data: Path | None = None
    """The file that the data was read from, if it was."""

    @cached_property
    def model(self) -> ModelProto:
        """The optimized model."""
        return whole_model(self.kept, self.source.graph.folder)

    @property
    def samples(self) -> Samples | None:
        """The inputs on which it is compared with the original; None if it is not."""
        return self.draw_samples()

    def save(
        self,
        path: str | Path,
        report_file: str | Path | None = None,
        pages: Mapping[Path, Callable[[Report], str]] | None = None,
    ) -> Report:
        """Write the model (a copy of the input if nothing changed); returns the completed report.

        If the name ends in .ort, it is written in onnxruntime's own format. With `report_file`, the
        report goes there as JSON, and `pages` are files with other texts that are made of it; they
        are written when the model is in place, which stays if one of them cannot be written.
        """
        target, start = Path(os.path.realpath(path)), time.perf_counter()
        texts = {} if report_file is None else {Path(report_file): Report.to_json}
        texts |= pages or {}
        with saving(target, self.source, self.data) as new:
            report = self.written(new)
            check_reports(texts, new.targets)
            goal = written_goal(report.goal, report.bytes.after)
            report = replace(report, goal=goal, weight_files=new.data_names)
            report = replace(report, old_weights=new.commit())
        seconds = {**report.seconds, "save": time.perf_counter() - start}
        report = replace(report, seconds=seconds)
        with after_writing(target):
            for file, text in texts.items():
                write_text(file, text(report))
        return report

    def written(self, new: NewFiles) -> Report:
        """Write everything to drafts."""
        report, source = self.report, self.source
        if files.is_ort(new.path):
            graph = Graph(self.kept, source.graph.folder)
            made = ort_format.write_ort(new, graph, self.samples)
            size, as_onnx = Change(report.bytes.before, made.bytes), report.bytes.after
            return replace(report, bytes=size, onnx_bytes=as_onnx, output_sha256=made.sha256())
        if report.changed or source.path is None:
            digest = write_changed(new, self.kept, source)
            return report.stored_in(new.bytes, digest)
        write_copy(new, source)
        return replace(report, output_sha256=source.sha256)


@dataclass(frozen=True, eq=False)
class Optimization:
    """One run of `optimize`: the original, what was asked for, and where inputs come from."""

    source: Source
    options: Options
    context: Context
    settings: dict[str, Any]
    """Everything that influences the result; written into it and into the report."""

    @classmethod
    def opened(
        cls, model: Model, options: Options, progress: Progress, frontiers: bool = False
    ) -> Optimization:
        """Open the model and its data; `frontiers` of all layers are told if that is wanted."""
        source = open_model(model)
        use = options.data_use
        inputs, data_hash = open_data(source.graph, options.data, options.range_used, use)
        inputs = replace(inputs, box_given=options.input_range is not None)
        inputs = inputs.parted(options.goal in LOSS_GOALS) if options.verify else inputs
        if options.semantics == "budget" and find_axes(source.graph)[0]:
            with suppress(DataError):
                inputs = inputs_to_fit(options, source.graph, inputs)
        merging = {f.name: getattr(options, f.name) for f in fields(MergeOptions)}
        settings = {**merging, "data": data_hash, "input_range": list(inputs.limits)}
        settings |= use.settings
        if inputs.verdict is not None:
            settings["verdict_rows"] = inputs.verdict.rows
        limit = options.max_certified_error
        if limit is not None:
            settings["max_certified_error"] = [limit, inputs.box_given]
        memory = None if limit is None else dict[Hashable, Any]()
        deadline = Deadline.after(options.time_limit)
        context = Context(inputs, progress, memory, deadline, frontiers=frontiers)
        if options.goal == "latency":
            timed = latency_of(options, source.graph, progress)
            context = replace(context, latency=timed)
        if options.goal == "bytes":
            cut = {} if options.time_limit is None else {"time_limit": options.time_limit}
            context = replace(context, stamp_bytes=stamp_bytes(__version__, settings | cut))
        return cls(source, options, context, settings)

    @cached_property
    def side_by_side(self) -> SideBySide:
        """Compares models with the original; its inputs are drawn when they are first needed."""
        return self.beside(self.context.inputs)

    @cached_property
    def side_by_side_wider(self) -> SideBySide | None:
        """The same on inputs under another assumption, if there is no data."""
        wider = self.context.inputs.wider
        return None if wider is None else self.beside(wider)

    def beside(self, inputs: InputSource) -> SideBySide:
        """Compares models with the original on these inputs."""
        graph = self.source.graph
        samples = samples_to_compare(graph, inputs, self.options.verify)
        return SideBySide(graph, samples, self.context.progress, inputs.clock)

    def merged(self, merging: CertifiedMerging) -> Result:
        """The merged model; if it fails the comparison, one merged at ε = 0, or a copy.

        A copy would not keep a limit on size or time: GoalMissed.
        """
        original = self.source.graph
        made = merging.apply(original, self.context)
        if not made.result.changed:
            return self.unmerged(made)
        if reason := self.reason_to_keep(made.result.graph):
            return self.unchanged(reason, made.undone(original).result)
        try:
            return self.finished(made)
        except VerificationError as reason:
            failed = str(reason)
        lossless = merging.lossless
        again = lossless and lossless.apply(original, self.context)
        if again and again.result.changed:
            with suppress(VerificationError):
                return self.finished(again.remarked(f"merged at ε = 0: otherwise {failed}"))
        rejected = f"the merged model was rejected: {failed}"
        if made.goal is not None and made.goal.kind not in LOSS_GOALS:
            asked = f"--max-{made.goal.kind} {made.goal.in_words(made.goal.limit)}"
            raise GoalMissed(f"{asked} was not met: {rejected}; nothing was written: allow more")
        return self.unchanged(rejected, made.undone(original).result)

    def reason_to_keep(self, result: Graph) -> str | None:
        """Why the original is better than a merged model, if shared weights made that larger."""
        graphs = (self.source.graph, result)
        before, after = (count_parameters(graph.model) for graph in graphs)
        if after <= before or self.options.goal in ("macs", "latency"):
            return None
        return (
            f"merged, the model would have more parameters ({before:,} → {after:,}), because "
            "several nodes share weights that would be copied: --skip such layers"
        )

    def unmerged(self, made: CertifiedResult) -> Result:
        """The original as the result, because nothing merges."""
        reason = why_nothing(self.source.graph, made.result)
        if made.certificate is not None:
            limit = f"--max-certified-error {self.options.max_certified_error:g}"
            reason = f"nothing merges within {limit}"
        if made.goal is not None and made.result.layers:
            reason = made.goal.why_nothing
        done = self.unchanged(reason, made.result)
        goal = made.goal and replace(made.goal, reached=made.goal.chosen_by)
        return replace(done, report=replace(done.report, goal=goal))

    def compared(self, graph: Graph, layers: tuple[LayerChange, ...]) -> Compared:
        """Check a model, and run it beside the original."""
        check(graph.model, "the result")
        self.context.progress.say("comparing with the original")
        with self.context.progress.timed("verify"):
            found = self.side_by_side.compare(graph)
            wider = None if any(layer.range_only for layer in layers) else self.side_by_side_wider
            others = [wider.compare(graph)] if wider else []
        every = (found, *others)
        found = max(every, key=lambda one: one.verification.relative_l2 or 0.0)
        worst = found.verification
        inputs = self.context.inputs
        held_out = None if inputs.data is None else inputs.verdict is not None
        known = {value.name for value in self.source.graph.inputs}
        remark = worst.metric_remark
        if remark is None and self.options.data_use.labels is None:
            remark = unused_labels(self.options.data, known)
        worst = replace(worst, held_out=held_out, metric_remark=remark)
        return replace(found, verification=worst)

    def finished(self, merged: CertifiedResult) -> Result:
        """A changed model, compared with the original and stamped."""
        result, certificate = merged.result, merged.certificate
        compared = self.compared(result.graph, result.layers)
        self.require_lossless(result, compared)
        verdict = self.context.inputs.verdict
        goal = merged.goal and judged_goal(merged.goal, compared, verdict)
        certificate = certificate and certificate.beside(compared.before, compared.after)
        graph = self.stamped(result.graph, result.layers)
        original = self.source.graph.model
        report = self.report(
            parameters=Change(count_parameters(original), count_parameters(graph.model)),
            bytes=Change(self.source.bytes, stored_bytes(graph)),
            multiply_adds=self.multiply_adds(graph),
            encrypted=self.encrypted(graph),
            layers=result.layers,
            folded=result.folded,
            refused=result.refused + result.unfolded,
            verification=compared.verification,
            certificate=certificate,
            goal=goal,
        )
        return self.result(graph.model, report)

    def multiply_adds(self, result: Graph) -> Change | None:
        """Of one sample in the original and in a result, if they can be counted."""
        inputs = self.context.inputs
        before, after = (multiply_adds_of_one(inputs, g) for g in (self.source.graph, result))
        return None if before is None or after is None else Change(before, after)

    def encrypted(self, result: Graph) -> EncryptedChange | None:
        """What the original and a result cost encrypted, if both are polynomials."""
        before = encrypted_cost(self.source.graph)
        after = before and (before if result is self.source.graph else encrypted_cost(result))
        return EncryptedChange(before, after) if before and after else None

    def require_lossless(self, result: PassResult, compared: Compared) -> None:
        """Raise if the outputs changed by more than rounding although ε allowed only that."""
        changed = [layer for layer in result.layers if layer.changed]
        lossless = self.options.semantics == "budget" and all(map(must_be_lossless, changed))
        if not lossless or compared.verification.unverified:
            return
        dtypes = {*(c.dtype for c in changed), *(f.dtype for f in result.folded)}
        roundoff = max(ROUNDOFF[dtype] for dtype in dtypes)
        with self.context.progress.timed("verify"):
            magnitude = self.side_by_side.magnitudes()
            require_equal(compared.before, compared.after, magnitude, roundoff)

    def unchanged(self, reason: str, result: PassResult | None = None) -> Result:
        """The original as the result, and why."""
        graph = self.source.graph
        count = count_parameters(graph.model)
        report = self.report(
            parameters=Change(count, count),
            bytes=Change(self.source.bytes, self.source.bytes),
            multiply_adds=self.multiply_adds(graph),
            encrypted=self.encrypted(graph),
            layers=result.layers if result else (),
            refused=result.refused + result.unfolded if result else (),
            unchanged=reason,
        )
        return self.result(graph.copied().model, report)

    def rounded_to_8_bits(self, done: Result, quantize: Quantize) -> Result:
        """A result in 8 bits, compared with the original again."""
        before = done.report
        result = quantize.apply(Graph(done.kept, self.source.graph.folder), self.context)
        graph = self.stamped(result.graph, before.layers)
        try:
            compared = self.compared(graph, before.layers)
        except VerificationError as reason:
            raise VerificationError(f"in 8 bits {reason}; optimize without --int8") from None
        require_sense(compared, before.verification)
        verdict = self.context.inputs.verdict
        goal = before.goal and judged_goal(before.goal, compared, verdict, in_8_bits=True)
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
            goal=goal,
            int8=found,
            unchanged=None,
            encrypted=None,
            seconds=dict(self.context.progress.seconds),
        )
        return self.result(graph.model, report)

    def stamped(self, graph: Graph, layers: tuple[LayerChange, ...]) -> Graph:
        """A copy whose metadata says how it was made."""
        copy = graph.copied()
        stamp(copy, __version__, self.settings_of(layers))
        return copy

    def settings_of(self, layers: tuple[LayerChange, ...]) -> dict[str, Any]:
        """The settings, with the time limit if it ended a search.

        No run has that setting when it begins: such a result is not taken for finished work.
        """
        cut = any(layer.cut for layer in layers)
        return {**self.settings, "time_limit": self.options.time_limit} if cut else self.settings

    def report(self, **findings: Any) -> Report:
        """A report on this run."""
        return Report(
            version=__version__,
            settings=self.settings_of(findings.get("layers", ())),
            input_sha256=self.source.sha256,
            assumed=self.context.inputs.assumption,
            seconds=dict(self.context.progress.seconds),
            **findings,
        )

    def result(self, model: ModelProto, report: Report) -> Result:
        """A result of this run."""
        data = self.options.data
        file = Path(data) if isinstance(data, str | Path) else None
        return Result(model, report, self.source, self.samples, file)

    def samples(self) -> Samples | None:
        """The inputs on which models are compared; None if they are not."""
        found = self.side_by_side.samples
        return None if isinstance(found, str) else found


def samples_to_compare(graph: Graph, inputs: InputSource, wanted: bool) -> Samples | str:
    """The inputs on which models are compared, or why they are not."""
    if not wanted:
        return "verification was switched off"
    try:
        return inputs.verification_samples(graph)
    except DataError as reason:
        return str(reason)


def must_be_lossless(layer: LayerChange) -> bool:
    """Whether the ε of a layer allows nothing but rounding."""
    return layer.eps is not None and layer.eps < ROUNDING_STEPS * ROUNDOFF[layer.dtype]
