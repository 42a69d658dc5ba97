"""Small networks as torch writes them, by both of its exporters; a script that `exports` runs.

Every second neuron of a hidden layer is a copy of the one before it, so that at ε = 0 there is
something to merge wherever a layer is recognised.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

Function = Callable[[Any], Any]

ACTIVATIONS: dict[str, Function] = {
    "x*x": lambda x: x * x,
    "x**2": lambda x: x**2,
    "square": torch.square,
    "pow": lambda x: torch.pow(x, 2.0),
    "x*x+x": lambda x: x * x + x,
    "polynomial": lambda x: 0.1 * x**2 + 0.5 * x + 0.25,
    "abs-square": lambda x: x.abs() ** 2,
    "relu": torch.relu,
    "relu-square": lambda x: torch.relu(x) ** 2,
    "leaky": nn.functional.leaky_relu,
    "clamp": lambda x: x.clamp(min=0),
    "maximum": lambda x: torch.maximum(x, torch.zeros_like(x)),
    "gelu": nn.functional.gelu,
    "silu": nn.functional.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": nn.functional.softplus,
    "hardswish": nn.functional.hardswish,
}
VARIANTS = ((True, 18, False), (True, 20, True), (False, 13, False), (False, 17, True))
"""Dynamo's exporter or TorchScript's, the opset, and whether the batch is dynamic."""
WIDTH, INPUTS, OUTPUTS = 16, 6, 3


class Applied(nn.Module):  # type: ignore[misc]
    """A function as a module."""

    def __init__(self, function: Function) -> None:
        """Keep the function."""
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        """Apply it."""
        return self.function(x)


class Residual(nn.Module):  # type: ignore[misc]
    """X + network(x), and the network's result as a second output."""

    def __init__(self, inner: nn.Module) -> None:
        """Keep the network."""
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        """Two outputs."""
        found = self.inner(x)
        return x + found, found


class Attention(nn.Module):  # type: ignore[misc]
    """Self-attention and a square network behind it."""

    def __init__(self) -> None:
        """One head."""
        super().__init__()
        self.attention = nn.MultiheadAttention(INPUTS, 1, batch_first=True)
        self.behind = mlp(ACTIVATIONS["x*x"])

    def forward(self, x: Any) -> Any:
        """Attend, then the network."""
        return self.behind(self.attention(x, x, x, need_weights=False)[0])


def planted(layer: Any) -> Any:
    """A layer in which every second unit is a copy of the one before."""
    with torch.no_grad():
        for parameter in (layer.weight, layer.bias):
            if parameter is not None:
                parameter[1::2] = parameter[::2]
    return layer


def mlp(
    activation: Function, bias: bool = True, between: Any = None, outputs: int = OUTPUTS
) -> Any:
    """Two hidden layers."""
    middle = [between] if between else []
    return nn.Sequential(
        planted(nn.Linear(INPUTS, WIDTH, bias)), *middle, Applied(activation),
        planted(nn.Linear(WIDTH, WIDTH, bias)), Applied(activation),
        nn.Linear(WIDTH, outputs, bias),
    )  # fmt: skip


def convolutional(activation: Function) -> Any:
    """Convolution, activation, pooling, and a network on top."""
    return nn.Sequential(
        planted(nn.Conv2d(1, 4, 3)), Applied(activation), nn.AvgPool2d(2), nn.Flatten(),
        planted(nn.Linear(4 * 3 * 3, WIDTH)), Applied(activation), nn.Linear(WIDTH, OUTPUTS),
    )  # fmt: skip


def networks() -> dict[str, tuple[Any, Any]]:
    """Every network with an example of its input."""
    rows, images = torch.zeros(2, INPUTS), torch.zeros(2, 1, 8, 8)
    square = ACTIVATIONS["x*x"]
    found: dict[str, tuple[Any, Any]] = {
        f"mlp {name}": (mlp(function), rows) for name, function in ACTIVATIONS.items()
    }
    for name in ("x*x", "x*x+x", "relu"):
        function = ACTIVATIONS[name]
        found[f"no bias {name}"] = mlp(function, bias=False), rows
        found[f"batchnorm {name}"] = mlp(function, between=nn.BatchNorm1d(WIDTH)), rows
        found[f"layernorm {name}"] = mlp(function, between=nn.LayerNorm(WIDTH)), rows
        found[f"dropout {name}"] = mlp(function, between=nn.Dropout()), rows
        found[f"conv {name}"] = convolutional(function), images
        found[f"residual {name}"] = Residual(mlp(function, outputs=INPUTS)), rows
        found[f"sequence {name}"] = mlp(function), torch.zeros(2, 5, INPUTS)
        found[f"softmax {name}"] = nn.Sequential(mlp(function), nn.Softmax(-1)), rows
    found["float64 x*x"] = mlp(square).double(), rows.double()
    found["float16 x*x"] = mlp(square).half(), rows.half()
    found["bfloat16 x*x"] = mlp(square).bfloat16(), rows.bfloat16()
    found["gru"] = nn.GRU(INPUTS, 4, batch_first=True), torch.zeros(2, 5, INPUTS)
    found["lstm"] = nn.LSTM(INPUTS, 4, batch_first=True), torch.zeros(2, 5, INPUTS)
    found["attention x*x"] = Attention(), torch.zeros(2, 5, INPUTS)
    found["embedding x*x"] = (
        nn.Sequential(nn.Embedding(7, INPUTS), mlp(square)),
        torch.zeros(2, 4, dtype=torch.int64),
    )
    return found


def write(network: Any, example: Any, path: Path, dynamo: bool, dynamic: bool, opset: int) -> None:
    """Export a network."""
    first: dict[str, Any] = {}
    if dynamic and dynamo:
        first["dynamic_shapes"] = ({0: torch.export.Dim("batch")},)
    elif dynamic:
        first["dynamic_axes"] = {"x": {0: "batch"}, "y": {0: "batch"}}
    names = {} if isinstance(network, nn.GRU | nn.LSTM) else {"input_names": ["x"]}
    if not dynamo and not isinstance(network, nn.GRU | nn.LSTM | Residual):
        names["output_names"] = ["y"]
    torch.onnx.export(
        network.eval(), (example,), str(path), dynamo=dynamo, opset_version=opset, verbose=False,
        external_data=False, **names, **first,
    )  # fmt: skip


def main(folder: Path) -> None:
    """All networks, by both exporters; what an exporter refuses is reported on stderr."""
    warnings.simplefilter("ignore")
    for name, (network, example) in networks().items():
        for dynamo, opset, dynamic in VARIANTS:
            if dynamic and isinstance(network, nn.GRU | nn.LSTM):
                continue
            exporter = "dynamo" if dynamo else "torchscript"
            path = folder / f"{exporter}-{opset} {name.replace('*', '·')}.onnx"
            try:
                write(network, example, path, dynamo, dynamic, opset)
            except (RuntimeError, ValueError, TypeError) as error:
                path.unlink(missing_ok=True)
                print(f"{path.name}: {str(error).splitlines()[0]}", file=sys.stderr)
    print(f"torch {torch.__version__}")


if __name__ == "__main__":
    torch.manual_seed(0)
    main(Path(sys.argv[1]))
