"""How much worse a model is than the original on the same rows, as the limits of the user count it.

error    of each output by itself, the relative error (`output_changes`)
drop     points of accuracy, or percent of the mean squared error (`label_scores`)
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxfde.errors import DataError
from onnxfde.estimates import Estimate
from onnxfde.numbers import Array
from onnxfde.running.label_scores import scores
from onnxfde.running.output_changes import MeasuredOutput


def error_losses(outputs: Sequence[MeasuredOutput]) -> list[Estimate]:
    """The error of each output; DataError if none varies."""
    found = [output.error for output in outputs if output.error is not None]
    if not found:
        raise DataError("--max-error: the model's outputs hold no floating-point numbers")
    if all(output.told.constant for output in outputs if output.error is not None):
        raise DataError("--max-error: the model's outputs are the same for all rows of the data")
    return found


def drop_loss(before: list[Array], after: list[Array], labels: Array | None) -> Estimate:
    """Points of accuracy, or percent of the mean squared error; DataError if labels do not fit."""
    if labels is None:
        raise DataError(
            "--max-drop needs labels or targets in the data: an array called 'y', or what --labels "
            "names"
        )
    found = scores(before, after, labels)
    if found.remark is not None and found.metric is not None:
        raise DataError(f"--max-drop: {found.remark}")
    if found.metric == "MSE" and found.lost is None:
        raise DataError("--max-drop: the original makes no error on this data: give --max-error")
    if found.lost is None:
        shapes = " or ".join("×".join(map(str, a.shape)) for a in before)
        own = "×".join(map(str, labels.shape))
        raise DataError(f"--max-drop: the labels 'y' are {own}, the model's output is {shapes}")
    return found.lost
