"""Make trained ONNX networks smaller by merging neurons that do the same thing.

>>> import onnxfde
>>> from onnxfde.demo import demo_model
>>> onnxfde.optimize(demo_model(), eps=0.1, input_range=(0, 1)).report.changed
True

The public interface is `__all__` (with the signatures and fields of what it names) and the JSON
that `Report.to_json` and `Comparison.to_json` write, whose `schema` grows when a field changes its
meaning. Everything else may change in any version. `Model`, `Data` and `Range` are the types of
arguments that most functions take.
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
    from onnxfde.numbers import Data
    from onnxfde.optimization import Result
    from onnxfde.options import Range
    from onnxfde.pipeline import optimize, verify
    from onnxfde.progress import Progress
    from onnxfde.report import Report
    from onnxfde.running.open_files import Model
    from onnxfde.running.verification import Verification

__version__ = "0.1.0"
__all__ = [
    "Comparison",
    "Data",
    "Inspection",
    "Layer",
    "Model",
    "OnnxfdeError",
    "Partition",
    "PolynomialSystem",
    "Progress",
    "Range",
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
    "Data": "numbers",
    "Inspection": "inspection",
    "Layer": "neurons.layer",
    "Model": "running.open_files",
    "OnnxfdeError": "errors",
    "Partition": "lumping.polynomial_system",
    "PolynomialSystem": "lumping.polynomial_system",
    "Progress": "progress",
    "Range": "options",
    "Report": "report",
    "Result": "optimization",
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
