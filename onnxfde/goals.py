"""What was asked for of the whole model, judged once, on rows that nothing was chosen by.

loss      on the rows kept for the verdict        latency   measured once more, in turns
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from onnxfde.errors import GoalMissed, OptionError
from onnxfde.graph.large_files import in_one_piece
from onnxfde.graph.model import Graph
from onnxfde.limits import LOSS_GOALS, latency_limit
from onnxfde.options import Options
from onnxfde.passes.goal_outcome import GoalOutcome
from onnxfde.progress import Progress
from onnxfde.running.paired_losses import drop_loss, error_losses
from onnxfde.running.samples import Samples
from onnxfde.running.verification import Compared

NOT_MEASURED = "nothing was measured"
TIMED_SECONDS = 4.0
"""How long two networks take turns for one figure. Chosen; not tuned."""


def latency_of(options: Options, original: Graph, progress: Progress) -> Callable[[Graph], float]:
    """Measures how long networks take: likely at most, in milliseconds or as a share."""
    text = options.max_latency
    assert text is not None
    as_share = latency_limit(text)[1]

    def time_of(graph: Graph) -> float:
        from onnxfde.machines.benchmark import bench

        progress.say("measuring the time")
        measured = bench(
            [in_one_piece(g.model, g.folder) for g in (original, graph)],
            targets=options.latency_target,
            seconds=TIMED_SECONDS,
            input_range=options.range_used,
        )
        found = measured.targets[0]
        line = found.lines[1].latencies[0] if len(found.lines) > 1 else None
        if found.error or line is None or line.error or line.speedup is None:
            reasons = (
                *(model.error for model in measured.models),
                found.error,
                line and line.error,
            )
            raise OptionError(f"--max-latency {text}: {next(filter(None, reasons), NOT_MEASURED)}")
        if as_share:
            return 1 / line.speedup.low
        if line.p50 is None:
            raise OptionError(
                f"--max-latency {text}: {options.latency_target} counts instructions, not time: "
                "give a share such as 60%"
            )
        return 1e3 * line.p50 * line.speedup.value / line.speedup.low

    return time_of


def judged_goal(
    outcome: GoalOutcome, compared: Compared, verdict: Samples | None, in_8_bits: bool = False
) -> GoalOutcome:
    """The outcome with what the result has in the end; GoalMissed if that is too much."""
    if outcome.kind not in LOSS_GOALS:
        return replace(outcome, reached=outcome.chosen_by)
    if outcome.kind == "error":
        loss = max(error_losses(compared.measured), key=lambda one: one.value)
    else:
        loss = drop_loss(compared.before, compared.after, verdict.labels if verdict else None)
    if loss.value > outcome.limit:
        raise GoalMissed(missed_text(outcome, loss.value, loss.rows, in_8_bits))
    return replace(outcome, reached=loss.value, reached_interval=loss.interval)


def missed_text(outcome: GoalOutcome, found: float, rows: int, in_8_bits: bool) -> str:
    """What came out in place of what was asked for."""
    which, chosen = ("in 8 bits ", "before that, ") if in_8_bits else ("", "")
    cure = "leave out --int8" if in_8_bits else "give more rows of --data"
    return (
        f"--max-{outcome.kind} {outcome.limit:g} was not met: {which}"
        f"{told_apart(found, outcome.limit)} on {rows} rows "
        f"kept for this ({chosen}by the rows it was chosen by {outcome.chosen_by:.3g}; "
        f"{outcome.nearest}); nothing was written: {cure}, or allow more"
    )


def told_apart(found: float, limit: float) -> str:
    """A number with three digits, or as many as it takes to see that it is not the limit.

    >>> told_apart(0.0612, 0.05), told_apart(0.05004, 0.05)
    ('0.0612', '0.05004')
    """
    texts = (f"{found:.{digits}g}" for digits in range(3, 17))
    return next((text for text in texts if float(text) != limit), repr(found))


def written_goal(outcome: GoalOutcome | None, written: int) -> GoalOutcome | None:
    """The outcome with the bytes of OUT, if these are limited; GoalMissed if they are too many.

    A search knows those of an .onnx file, not of an .ort file or of names of data files.
    """
    if outcome is None or outcome.kind != "bytes":
        return outcome
    if written > outcome.limit:
        raise GoalMissed(
            f"--max-bytes {outcome.limit:,.0f} was not met: OUT would have {written:,} bytes; "
            "nothing was written: allow more, or write .onnx"
        )
    return replace(outcome, reached=written)
