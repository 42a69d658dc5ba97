"""The fewest neurons that are equal for all finite inputs."""

from __future__ import annotations

from onnxfde.neurons.frontier import Reduced
from onnxfde.neurons.problem import Problem


def structural_merge(problem: Problem) -> Reduced | None:
    """The layer without constants; None if it has none."""
    live = problem.live
    if not live.neurons:
        return problem.constant()
    if live.neurons == problem.layer.neurons:
        return None
    return problem.reduced(problem.read_back(live), tuple((int(i),) for i in problem.numbers))
