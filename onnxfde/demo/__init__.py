"""Two small networks that ship with the package, and data for them.

`digits`: 64-128-64-10 with ReLU, trained in torch on 1,197 of the 1,797 8×8 images of "Optical
Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak, UCI, doi 10.24432/C50P49, CC BY 4.0; the
test set, as scikit-learn has it) divided by 16; its data are the other 600 images and their labels.

`gly`: 7-120-7 with x², trained in torch on the derivatives of the 7-species glycolytic oscillator;
its data are 300 test rows. Inputs of both are in [0, 1].

Both were exported with torch.onnx; `benchmarks/make_demo.py` makes all files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

DemoName = Literal["digits", "gly"]


def demo_model(name: DemoName = "gly") -> Path:
    """The file of a model."""
    return Path(__file__).parent / f"{name}.onnx"


def demo_data(name: DemoName = "gly") -> Path:
    """The file of test rows: inputs `x`, and targets or labels `y`."""
    return Path(__file__).parent / f"{name}.npz"
