"""The original in 8 bits, by onnxruntime's own quantizer: a scale for each channel of weights.

That needs opset 13, to which older models are converted first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnx.version_converter

from benchmarks.real.subject import Material

ROWS = 200
"""Rows that the ranges of values are taken from, at most; chosen."""
PER_CHANNEL = 13
"""The opset since which QuantizeLinear knows an axis (ONNX)."""


def quantized(kind: str, material: Material, target: Path) -> None:
    """Write the original with 8-bit weights; `static`: with 8-bit values too."""
    from onnxruntime.quantization import QuantFormat, quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with TemporaryDirectory() as folder:
        newer, ready = Path(folder) / "newer.onnx", Path(folder) / "ready.onnx"
        onnx.save(converted(onnx.load(material.model)), newer)
        quant_pre_process(str(newer), str(ready), skip_symbolic_shape=True)
        if kind == "dynamic":
            quantize_dynamic(ready, target, per_channel=True)
        else:
            rows, form = Rows(material), QuantFormat.QDQ
            quantize_static(ready, target, rows, quant_format=form, per_channel=True)


def converted(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in an opset that knows scales for each channel."""
    version = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    if version >= PER_CHANNEL:
        return model
    return onnx.version_converter.convert_version(model, PER_CHANNEL)


class Rows:
    """The rows to fit to, one at a time, as onnxruntime's quantizer asks for them."""

    def __init__(self, material: Material) -> None:
        """Open the file; only arrays that are named as inputs count."""
        self.rows = rows_of(material)

    def get_next(self) -> dict[str, Any] | None:
        """The next row, None at the end."""
        return next(self.rows, None)


def rows_of(material: Material) -> Iterator[dict[str, Any]]:
    """Rows spread evenly over the data."""
    names = [v.name for v in onnx.load(material.model, load_external_data=False).graph.input]
    with np.load(material.data) as file:
        arrays = {name: file[name] for name in names if name in file.files}
    count = min(map(len, arrays.values()))
    for i in np.linspace(0, count - 1, min(ROWS, count)).astype(int):
        yield {name: x[i : i + 1] for name, x in arrays.items()}
