"""Make trained ONNX networks smaller by merging neurons that do the same thing.

>>> import onnxfde
>>> from onnxfde.demo import demo_model
>>> onnxfde.optimize(demo_model(), eps=0.1, input_range=(0, 1)).report.changed
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxfde.errors import OnnxfdeError
    from onnxfde.inspection import Inspection, inspect
    from onnxfde.lumping.polynomial_system import Partition, PolynomialSystem, encode, quotient
    from onnxfde.lumping.refinement import refine
    from onnxfde.machines.benchmark import bench
    from onnxfde.machines.results import Comparison
    from onnxfde.neurons.layer import Layer
    from onnxfde.pipeline import Result, optimize, verify
    from onnxfde.report import Report
    from onnxfde.running.verification import Verification

__version__ = "0.1.0"
__all__ = [
    "Comparison",
    "Inspection",
    "Layer",
    "OnnxfdeError",
    "Partition",
    "PolynomialSystem",
    "Report",
    "Result",
    "Verification",
    "__version__",
    "bench",
    "encode",
    "inspect",
    "optimize",
    "quotient",
    "refine",
    "verify",
]

_HOME = {
    "Comparison": "machines.results",
    "Inspection": "inspection",
    "Layer": "neurons.layer",
    "OnnxfdeError": "errors",
    "Partition": "lumping.polynomial_system",
    "PolynomialSystem": "lumping.polynomial_system",
    "Report": "report",
    "Result": "pipeline",
    "Verification": "running.verification",
    "bench": "machines.benchmark",
    "encode": "lumping.polynomial_system",
    "inspect": "inspection",
    "optimize": "pipeline",
    "quotient": "lumping.polynomial_system",
    "refine": "lumping.refinement",
    "verify": "pipeline",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for; `import onnxfde` alone loads nothing heavy."""
    if name not in _HOME:
        raise AttributeError(f"module 'onnxfde' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"onnxfde.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    """The public names, whether they were used already or not."""
    return sorted(__all__)
