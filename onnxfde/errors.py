"""All errors that onnxfde raises on purpose.

OnnxfdeError            exit code 1
├── ModelError          the model file cannot be read, or is not valid
├── DataError           the data file does not fit the model
├── AlgebraError        a polynomial system, or a partition of its variables, makes no sense
├── OptionError         an option does not fit the model, such as the name of an unknown layer
│   └── UsageError      a bad value, or options that cannot be combined (exit code 2)
├── OutputError         the result cannot be written
├── TargetError         a target is not set up, cannot be reached, or cannot run a model
├── RuntimeUnavailable  neither onnxruntime nor onnx.reference can run the model
│   └── RunStopped      running it took too long
└── VerificationError   the result is not what was promised; nothing is written
"""

from __future__ import annotations


class OnnxfdeError(Exception):
    """The base class; its message is one line that names the cause and a remedy."""

    exit_code = 1


class ModelError(OnnxfdeError):
    """The model cannot be read or is not a valid ONNX model."""


class DataError(OnnxfdeError):
    """The data file cannot be read or does not fit the model's inputs."""


class AlgebraError(OnnxfdeError):
    """A polynomial system, or a partition of its variables, makes no sense."""


class OptionError(OnnxfdeError):
    """An option makes no sense, alone or for this model."""


class UsageError(OptionError):
    """A value that makes no sense for any model, or options that cannot be combined."""

    exit_code = 2


class OutputError(OnnxfdeError):
    """The result cannot be written; a file that was there before is intact."""


class TargetError(OnnxfdeError):
    """A target is not set up, cannot be reached, or cannot run a model."""


class RuntimeUnavailable(OnnxfdeError):  # noqa: N818 - a state of the machine, not a mistake
    """No runtime on this machine can execute the model."""


class RunStopped(RuntimeUnavailable):
    """Running the model took too long and was stopped."""


class VerificationError(OnnxfdeError):
    """The result differs from the original by more than was promised."""
