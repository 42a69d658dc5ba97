"""What 8 bits cost a merged network, and one that is not merged.

Needs the shared folder and the network of `benchmarks.nets`. MNIST:
`cryptonets_square` 400-128-10 behind a Conv and a trained 784-256-10; merged with 4,000 unlabelled
training images, errors and accuracies on the 10,000 test images. "int8 part" is the distance from
the same network in float32.

- onnxruntime: `quantize_dynamic` or `quantize_static` as they come, on the original
- `--int8`: our settings, on the original
- before: merged for float32, scaled as 0.1.0 did, then our settings
- scales: merged for float32, scaled as `balanced` does now, then our settings
- merged `--int8`: merged with a view to 8 bits, then our settings
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
from benchmarks import table
from benchmarks.cryptonets import images
from benchmarks.nets import trained
from benchmarks.tasks import Array, mnist_rows, shared_file
from onnxfde.graph.match import find_layers
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.neurons.kernels import Metric
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.refit import squared
from onnxfde.options import Int8
from onnxfde.passes.merge_neurons import MergeNeurons, replaced
from onnxfde.running.opening import open_data
from onnxfde.running.runtime import quiet

IMAGES, CALIBRATION = 4000, 512
MODES: tuple[Int8, ...] = ("dynamic", "static")
HEADER = "model | neurons | int8 | test accuracy | relative error | int8 part | bytes"


@dataclass(frozen=True, eq=False)
class Net:
    """A network with the inputs it is merged for and those it is tested on."""

    path: Path
    counts: tuple[int, ...]
    data: Mapping[str, Array]
    test: Mapping[str, Array]

    def row(self, name: str, neurons: int, model: ModelProto, *int8: Any) -> tuple[object, ...]:
        """One line of the table; `int8` are the mode and the same network in float32."""
        found = onnxfde.verify(self.path, model, data=self.test)
        mode, part = "–", "–"
        if int8:
            mode, base = int8
            part = f"{onnxfde.verify(base, model, data=self.test).relative_l2 or 0:.4f}"
        score, error = f"{found.metric_after or 0:.2%}", f"{found.relative_l2 or 0:.4f}"
        return name, neurons, mode, score, error, part, f"{model.ByteSize():,}"

    def rows(self) -> Iterator[tuple[object, ...]]:
        """The original, and every count."""
        original = onnx.load(self.path)
        count = find_layers(Graph(original))[0][-1].layer.neurons
        yield self.row("original", count, original)
        for mode in MODES:
            yield self.row("onnxruntime", count, self.plain(mode), mode, original)
        for mode in MODES:
            yield self.row("`--int8`", count, self.later(original, mode), mode, original)
        for count in self.counts:
            yield from self.merged(count)

    def merged(self, count: int) -> Iterator[tuple[object, ...]]:
        """One count: merged for float32, and for 8 bits."""
        graph = Graph(onnx.load(self.path))
        probe, _ = open_data(graph, self.data, (-1, 1))
        scales = MergeNeurons(neurons=count).apply(graph, probe).model
        both = MergeNeurons(neurons=count, int8="dynamic").apply(graph, probe).model
        yield self.row("merged", count, scales)
        yield self.row("merged for 8 bits", count, both)
        models = {"before": self.before(scales), "scales": scales, "merged `--int8`": both}
        for mode in MODES:
            for name, model in models.items():
                yield self.row(name, count, self.later(model, mode), mode, model)

    def later(self, model: ModelProto, mode: Int8) -> ModelProto:
        """A model in 8 bits with our settings."""
        return onnxfde.optimize(
            model, skip=("*",), data=self.data, int8=mode, verify=False, force=True
        ).model

    def plain(self, mode: Int8) -> ModelProto:
        """The original in 8 bits with onnxruntime's own settings.

        Without the shapes that torch stores for weights: they make onnxruntime fail.
        """
        from onnxruntime import quantization

        model = onnx.load(self.path)
        model.graph.ClearField("value_info")
        (name, rows), fixed = next(iter(self.data.items())), "input" in self.data
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
        """A merged model with the scales that onnxfde 0.1.0 gave its last layer."""
        graph, original = Graph(model), Graph(onnx.load(self.path))
        match, first = (find_layers(g)[0][-1] for g in (graph, original))
        metric = open_data(graph, self.data, (-1, 1))[0].layer_inputs(graph, match).metric
        even = even_weights(match.layer, first.layer, metric).stored_as(np.float32)
        return replaced(graph, match.name, even).model


def even_weights(layer: Layer, original: Layer, metric: Metric) -> Layer:
    """From E[h] = 1, powers of two that even the largest weights of each neuron in u and V."""
    unit = np.sqrt(squared(metric.whiten(layer.incoming)))
    layer = Layer(layer.incoming / unit[:, None], layer.outgoing * unit**2, layer.offset)
    rows, columns = np.abs(layer.incoming).max(axis=1), np.abs(layer.outgoing).max(axis=0)
    size = squared(metric.whiten(layer.incoming))
    most = np.sqrt(squared(metric.whiten(original.incoming)).max() / size)
    even = np.round(np.log2((columns / rows) ** (1 / 3)))
    exponent = np.minimum(even, np.floor(np.log2(most))).astype(int)
    return Layer(
        np.ldexp(layer.incoming, exponent[:, None]),
        np.ldexp(layer.outgoing, -2 * exponent),
        layer.offset,
    )


def nets() -> dict[str, Net]:
    """Both networks."""
    rows, mnist = mnist_rows(), trained("mnist")
    pictures = {"input": images(rows.x_train[:IMAGES])}
    tested = {"input": images(rows.x_test), "y": rows.y_test}
    return {
        "cryptonets_square 400-128-10": Net(
            shared_file("models/cryptonets_square.onnx"), (96, 64, 32), pictures, tested
        ),
        "trained 784-256-10": Net(
            mnist.path,
            (64, 32, 16),
            {"x": rows.x_train[:IMAGES]},
            {"x": rows.x_test, "y": rows.y_test},
        ),
    }


def main() -> None:
    """One table a network."""
    sections = [table.Section(name, HEADER, list(net.rows())) for name, net in nets().items()]
    lines = (__doc__ or "").strip().splitlines()
    table.write_sections(__file__, "8 bits after merging", sections, "\n".join(lines[2:]))


if __name__ == "__main__":
    main()
