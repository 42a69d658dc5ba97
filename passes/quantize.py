"""quantize: weights and values in 8 bits, with onnxruntime's quantizer (`running/int8.py`)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar

from onnxfde.graph.model import Graph
from onnxfde.options import Int8
from onnxfde.passes.result import Context, PassResult
from onnxfde.running.int8 import quantize, require_quantizable, small_weights


@dataclass(frozen=True)
class Quantize:
    """Round weights and values to 8 bits."""

    mode: Int8 = "dynamic"
    """Where ranges of values come from: each run (dynamic), or the data (static)."""

    name: ClassVar[str] = "quantize"

    def check(self, graph: Graph) -> None:
        """Raise for a model that the quantizer would damage, before any work is done."""
        require_quantizable(graph)

    def apply(self, graph: Graph, context: Context | None = None) -> PassResult:
        """A copy in 8 bits."""
        context = context or Context()
        self.check(graph)
        context.progress.say("rounding to 8 bits")
        with context.progress.timed("int8"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of numpy, where values are NaN
            model = quantize(graph, self.mode, context.inputs.data)
        return PassResult(Graph(model, graph.folder), small_weights=small_weights(model))
