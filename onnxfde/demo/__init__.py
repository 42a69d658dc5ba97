"""A small network that ships with the package, and rows to try it on.

The derivatives of the 7-species glycolytic oscillator, learned by a 7-120-7 network with x² in
torch and exported with torch.onnx (`benchmarks/make_demo.py` makes both files). Inputs are in
[0, 1].
"""

from __future__ import annotations

from pathlib import Path


def demo_model() -> Path:
    """The model."""
    return Path(__file__).parent / "gly.onnx"


def demo_data() -> Path:
    """300 test rows: `x` and the targets `y`."""
    return Path(__file__).parent / "gly.npz"
