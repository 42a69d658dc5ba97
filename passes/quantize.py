"""quantize: weights and values in 8 bits, by onnxruntime's quantizer (`running/int8.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onnxfde.graph.model import Graph
from onnxfde.options import Int8
from onnxfde.passes.result import Context, PassResult
from onnxfde.running.int8 import quantize, refuse, small_weights


@dataclass(frozen=True)
class Quantize:
    """Round weights and values to 8 bits."""

    mode: Int8 = "dynamic"
    """Ranges of values: found in each run, or (static) measured once on the data."""

    name: ClassVar[str] = "quantize"

    def check(self, graph: Graph) -> None:
        """Refuse a model that the quantizer would spoil, before any work is done."""
        refuse(graph)

    def apply(self, graph: Graph, context: Context | None = None) -> PassResult:
        """A copy in 8 bits."""
        context = context or Context()
        self.check(graph)
        context.progress.say("rounding to 8 bits")
        with context.progress.timed("int8"):
            model = quantize(graph, self.mode, context.inputs.data)
        return PassResult(Graph(model, graph.folder), small_weights=small_weights(model))
