"""What the whole model costs if its layers keep so many units, and how much is allowed.

params, macs    counted exactly, from shapes (`graph/axis_costs`)
bytes           what the file has now, less the bytes of the numbers that go
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from onnxfde.errors import OptionError
from onnxfde.graph.axes import Axis
from onnxfde.graph.axis_costs import AxisCosts, Counts, axis_costs
from onnxfde.graph.cost import multiply_adds, one_sample
from onnxfde.graph.edit_axes import weight_type
from onnxfde.graph.model import Graph
from onnxfde.graph.shapes import Dims
from onnxfde.graph.size import count_parameters, stored_bytes
from onnxfde.limits import SHARE_SLACK, Limit, limit_of

MEASURES: dict[str, Callable[[Graph, Mapping[str, Dims]], int | None]] = {
    "params": lambda graph, _: count_parameters(graph.model),
    "macs": lambda graph, shapes: multiply_adds(graph.model, one_sample(graph, shapes)),
    "bytes": lambda graph, _: stored_bytes(graph),
}
"""How large a model is, by what is limited, for known shapes of inputs; None if it cannot be
counted."""
HARDLY_ANY = 20
"""A whole number up to 100 that is this many times smaller than the model is taken for a share
without its sign. Chosen."""
UNITS = {"params": "parameters", "macs": "multiply-adds", "bytes": "bytes"}
"""What is counted, in words."""


def size_of_model(kind: str, graph: Graph, shapes: Mapping[str, Dims]) -> int:
    """How large a model is; OptionError if that cannot be counted."""
    found = MEASURES[kind](graph, shapes)
    if found is None:
        open_lengths = any(None in dims for dims in one_sample(graph, shapes).values())
        why = ": its inputs leave lengths open, give --data" if open_lengths else ""
        raise OptionError(f"--max-{kind}: the model's {UNITS[kind]} cannot be counted{why}")
    return found


def allowed_size(kind: str, limit: Limit, original: Graph, shapes: Mapping[str, Dims]) -> int:
    """How much of it a limit allows; OptionError if a share was probably meant."""
    size = size_of_model(kind, original, shapes)
    if isinstance(limit, int) and limit <= 100 and size > HARDLY_ANY * limit:
        raise OptionError(
            f"--max-{kind} {limit} would leave {limit} of {size:,} {UNITS[kind]}: for {limit} % "
            f"give {limit}% (in Python {limit / 100:g})"
        )
    return limit_of(limit, size)


def cost_of_counts(
    kind: str, graph: Graph, axes: Sequence[Axis], shapes: Mapping[str, Dims]
) -> Callable[[Counts], float]:
    """What a model costs whose axes keep so many units, refitted."""
    costs = axis_costs(graph, axes, one_sample(graph, shapes))
    if kind == "macs":
        return lambda kept: float(costs.total_macs(kept) or 0)
    more = new_biases(axes)
    if kind == "params":
        return lambda kept: float(costs.total_parameters(kept) + more)
    return bytes_of_counts(graph, axes, costs, more)


def bytes_of_counts(
    graph: Graph, axes: Sequence[Axis], costs: AxisCosts, more: int
) -> Callable[[Counts], float]:
    """The bytes of the file, all of whose numbers that go have one type."""
    width = max((weight_type(graph, axis.producer.node).itemsize for axis in axes), default=4)
    whole, now = stored_bytes(graph), costs.total_parameters({})
    return lambda kept: whole + width * (costs.total_parameters(kept) + more - now)


def new_biases(axes: Sequence[Axis]) -> int:
    """Parameters that a refit may add: readers without a bias get one."""
    readers = [reader for axis in axes for reader in axis.readers if reader.bias is None]
    return sum({reader.node.output[0]: len(reader.scale) for reader in readers}.values())


def refuse_too_little(kind: str, limit: int, least: float) -> None:
    """OptionError if not even one unit in each layer is within a limit."""
    if least > limit * (1 + SHARE_SLACK):
        raise OptionError(
            f"--max-{kind}: {limit:,} {UNITS[kind]} are too few, with one unit left in each layer "
            f"that can be merged the model still has {int(least):,}"
        )
