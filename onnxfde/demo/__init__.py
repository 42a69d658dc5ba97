"""A small network that ships with the package, and data for it.

A 7-120-7 network with x² that was trained in torch on the derivatives of the 7-species glycolytic
oscillator and exported with torch.onnx (`benchmarks/make_demo.py` makes both files). Its inputs are
in [0, 1].
"""

from __future__ import annotations

from pathlib import Path


def demo_model() -> Path:
    """The file of the model."""
    return Path(__file__).parent / "gly.onnx"


def demo_data() -> Path:
    """The file of 300 test rows: inputs `x` and targets `y`."""
    return Path(__file__).parent / "gly.npz"
