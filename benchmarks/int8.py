"""How much do 8 bits cost a merged network, and one that is not merged?

Needs the extra `paper` and the shared folder. Two networks on MNIST: `cryptonets_square`, whose
layer 400-128-10 follows a Conv, and a trained 784-256-10. Both are merged by `minimal` with 4,000
unlabelled training images; errors and accuracies are those on the 10,000 test images. "int8 part"
is the relative error against the same network in float32.

- onnxruntime: the original after `quantize_dynamic` or `quantize_static` with default settings
- `--int8`: the original after quantization with our settings
- before: merged for float32, scaled as onnxfde 0.1.0 did, then quantized with our settings
- scales: merged for float32, scaled as onnxfde does now, then quantized with our settings
- merged `--int8`: merged with 8 bits in view, then quantized with our settings
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import onnxfde
from benchmarks.common import table
from benchmarks.common.cryptonets_square import (
    INPUT,
    cryptonets_known,
    cryptonets_path,
    cryptonets_test,
)
from benchmarks.common.datasets import MNIST_KNOWN
from benchmarks.common.layers import layers_of, widths, with_layer
from benchmarks.common.square_networks import trained
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.neurons.kernels import Metric, mean_square
from onnxfde.neurons.layer import Layer
from onnxfde.numbers import Array
from onnxfde.options import Int8
from onnxfde.passes import Context, MergeNeurons
from onnxfde.progress import Progress
from onnxfde.running.layer_inputs import layer_inputs
from onnxfde.running.open_files import open_data
from onnxfde.running.recording import Recording
from onnxfde.running.runtime import quiet

CALIBRATION = 512
"""Images from which onnxruntime takes its static ranges; chosen."""
MODES: tuple[Int8, ...] = ("dynamic", "static")
HEADER = "model | neurons | int8 | test accuracy | relative error | int8 part | bytes"


@dataclass(frozen=True, eq=False)
class Net:
    """A network, the numbers of neurons to leave, the inputs to merge with, and the test rows."""

    path: Path
    counts: tuple[int, ...]
    data: Mapping[str, Array]
    test: Mapping[str, Array]

    def row(self, name: str, neurons: int, model: ModelProto, *int8: Any) -> tuple[object, ...]:
        """One line of the table; `int8` holds the mode and the same network in float32."""
        found = onnxfde.verify(self.path, model, data=self.test)
        mode, part = "–", "–"
        if int8:
            mode, base = int8
            part = f"{onnxfde.verify(base, model, data=self.test).relative_l2 or 0:.4f}"
        score, error = f"{found.metric_after or 0:.2%}", f"{found.relative_l2 or 0:.4f}"
        return name, neurons, mode, score, error, part, f"{model.ByteSize():,}"

    def rows(self) -> Iterator[tuple[object, ...]]:
        """The original, then every count."""
        original = onnx.load(self.path)
        count = widths(original)[-1]
        yield self.row("original", count, original)
        for mode in MODES:
            yield self.row("onnxruntime", count, self.plain(mode), mode, original)
        for mode in MODES:
            yield self.row("`--int8`", count, self.later(original, mode), mode, original)
        for count in self.counts:
            yield from self.merged(count)

    def merged(self, count: int) -> Iterator[tuple[object, ...]]:
        """One count, merged for float32 and for 8 bits."""
        graph = Graph(onnx.load(self.path))
        context = Context(open_data(graph, self.data, (-1, 1))[0])
        scales = MergeNeurons(neurons=count).apply(graph, context).model
        both = MergeNeurons(neurons=count, int8="dynamic").apply(graph, context).model
        yield self.row("merged", count, scales)
        yield self.row("merged for 8 bits", count, both)
        models = {"before": self.before(scales), "scales": scales, "merged `--int8`": both}
        for mode in MODES:
            for name, model in models.items():
                yield self.row(name, count, self.later(model, mode), mode, model)

    def later(self, model: ModelProto, mode: Int8) -> ModelProto:
        """A model quantized with our settings."""
        return onnxfde.optimize(
            model, skip=("*",), data=self.data, int8=mode, verify=False, force=True
        ).model

    def plain(self, mode: Int8) -> ModelProto:
        """The original quantized with onnxruntime's default settings.

        The shapes that torch stores for weights make onnxruntime fail: they are removed.
        """
        from onnxruntime import quantization

        model = onnx.load(self.path)
        model.graph.ClearField("value_info")
        (name, rows), fixed = next(iter(self.data.items())), INPUT in self.data
        batches = iter(np.split(rows[:CALIBRATION], CALIBRATION if fixed else 1))

        class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
            def get_next(self) -> dict[str, Array] | None:
                batch = next(batches, None)
                return None if batch is None else {name: batch}

        with tempfile.TemporaryDirectory() as folder, quiet():
            target = Path(folder) / "int8.onnx"
            if mode == "dynamic":
                quantization.quantize_dynamic(model, target)
            else:
                quantization.quantize_static(model, target, Reader())
            return onnx.load(target)

    def before(self, model: ModelProto) -> ModelProto:
        """A merged model whose last layer is scaled as onnxfde 0.1.0 did."""
        match, first = layers_of(model)[-1], layers_of(onnx.load(self.path))[-1]
        graph = Graph(model)
        inputs, _ = open_data(graph, self.data, (-1, 1))
        metric = layer_inputs(Recording.of(graph, inputs, Progress()), match).metric
        even = even_weights(match.layer, first.layer, metric).stored_as(np.float32)
        return with_layer(model, even, at=-1)


def even_weights(layer: Layer, original: Layer, metric: Metric) -> Layer:
    """Neurons scaled to E[h] = 1, then by powers of two that even out their largest |u| and |V|."""
    unit = np.sqrt(mean_square(metric.whiten(layer.incoming)))
    layer = Layer(layer.incoming / unit[:, None], layer.outgoing * unit**2, layer.offset)
    rows, columns = np.abs(layer.incoming).max(axis=1), np.abs(layer.outgoing).max(axis=0)
    size = mean_square(metric.whiten(layer.incoming))
    most = np.sqrt(mean_square(metric.whiten(original.incoming)).max() / size)
    even = np.round(np.log2((columns / rows) ** (1 / 3)))
    exponent = np.minimum(even, np.floor(np.log2(most))).astype(int)
    return Layer(
        np.ldexp(layer.incoming, exponent[:, None]),
        np.ldexp(layer.outgoing, -2 * exponent),
        layer.offset,
    )


def nets() -> dict[str, Net]:
    """Both networks, by their headings."""
    mnist = trained("mnist")
    rows = mnist.rows
    return {
        "cryptonets_square 400-128-10": Net(
            cryptonets_path(), (96, 64, 32), cryptonets_known(MNIST_KNOWN), cryptonets_test()
        ),
        "trained 784-256-10": Net(
            mnist.path,
            (64, 32, 16),
            {"x": rows.x_train[:MNIST_KNOWN]},
            {"x": rows.x_test, "y": rows.y_test},
        ),
    }


def main() -> None:
    """One table per network."""
    sections = [table.Section(name, HEADER, list(net.rows())) for name, net in nets().items()]
    lines = (__doc__ or "").strip().splitlines()
    table.write_sections(__file__, "8 bits after merging", sections, "\n".join(lines[2:]))


if __name__ == "__main__":
    main()
