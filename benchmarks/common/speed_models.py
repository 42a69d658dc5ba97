"""The models of `benchmarks.speed`, made once into its cache folder.

`python -m benchmarks.common.speed_models RECIPE FILE` makes one, in a process of its own: the peak
memory that Linux reports for a command is at least that of the process that started it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from benchmarks.common.made_layers import make_layer, network_of
from benchmarks.common.random_network import random_network
from benchmarks.common.square_networks import trained

BALLAST = 2_200_000_000
"""Bytes of the table that makes the model with external data one of 2.5 GB."""
SINGLE_FILE = 2_100_000_000
"""Bytes of the table in the model of 2.1 GB; a file of protobuf cannot hold more than 2³¹ − 1."""
PIECE = 1 << 26
"""Bytes of a table that are written at a time; chosen."""
SPARE = 2
"""How many times its own size must be free on the disk, for a model and for what is made of it."""
TWO_LAYERS = """<ir_version: 9, opset_import: ["": 17]>
g (float[N,{inputs}] x) => (float[N,{outputs}] y) {{
  h1 = Gemm <transB = 1> (x, W1, b1) s1 = Mul(h1, h1) y1 = Gemm <transB = 1> (s1, V1, c1)
  r = Relu(y1)
  h2 = Gemm <transB = 1> (r, W2, b2) s2 = Mul(h2, h2) y2 = Gemm <transB = 1> (s2, V2, c2)
  e = Gather <axis = 0> (table, chosen) y = Add(y2, e) }}"""
"""Two layers and a table of which one row is read."""
ONE_LAYER = """<ir_version: 9, opset_import: ["": 17]>
g (float[N,{inputs}] x) => (float[N,{outputs}] y) {{
  h = Gemm <transB = 1> (x, W, b) s = Mul(h, h) z = Gemm <transB = 1> (s, V, c)
  e = Gather <axis = 0> (table, chosen) y = Add(z, e) }}"""


class CannotMakeError(RuntimeError):
    """Why a model cannot be made here."""


def model_file(recipe: str, folder: Path, python: str = sys.executable) -> Path:
    """The file of a recipe such as "random 64-256-10", made now if it is not there."""
    path = folder / f"{recipe.replace(' ', '-')}.onnx"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    kind, _, shape = recipe.partition(" ")
    refuse_full_disk({"external": BALLAST, "single": SINGLE_FILE}.get(kind, 0), folder)
    runner = python if kind == "digits" else sys.executable
    done = subprocess.run(
        [runner, "-m", "benchmarks.common.speed_models", kind, shape, str(path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    if done.returncode:
        raise CannotMakeError(done.stderr.strip().splitlines()[-1])
    return path


def refuse_full_disk(size: int, folder: Path) -> None:
    """Raise if a large model and what is made of it do not fit on the disk."""
    free = shutil.disk_usage(folder).free
    if free < SPARE * size:
        raise CannotMakeError(
            f"{SPARE * size / 1e9:.1f} GB of disk are needed, {free / 1e9:.1f} free"
        )


def make(kind: str, shape: str, path: Path) -> None:
    """Write a model; under another name until it is complete."""
    unfinished = path.with_suffix(".part")
    if kind == "random":
        onnx.save(random_network(*map(int, shape.split("-"))), unfinished)
    elif kind == "digits":
        copy_digits(path, unfinished)
    elif kind == "external":
        save_external(shape, path.with_suffix(".bin"), unfinished)
    elif kind == "single":
        save_single(shape, unfinished)
    else:
        onnx.save(network_of(make_layer(shape, kind)), unfinished)
    unfinished.rename(path)


def copy_digits(path: Path, unfinished: Path) -> None:
    """The network trained on digits, and beside it the rows that merging may see."""
    net = trained("digits")
    np.savez(path.with_suffix(".npz"), x=net.rows.x_train)
    shutil.copy(net.path, unfinished)


def layer_arrays(shape: str, suffix: str = "") -> dict[str, npt.NDArray[Any]]:
    """Random weights as in `random_network`, but a tenth of the neurons are present twice."""
    inputs, neurons, outputs = map(int, shape.split("-"))
    rng = np.random.default_rng(int(suffix or 0))
    shapes = {"W": (neurons, inputs), "b": (neurons,), "V": (outputs, neurons), "c": (outputs,)}
    arrays = {
        name: (rng.normal(size=size) / np.sqrt(size[-1])).astype(np.float32)
        for name, size in shapes.items()
    }
    for name in ("W", "b"):
        arrays[name][neurons - neurons // 10 :] = arrays[name][: neurons // 10]
    return {name + suffix: array for name, array in arrays.items()}


def save_external(shape: str, data: Path, path: Path) -> None:
    """Two layers and a table, all weights in one file beside the model."""
    inputs, _, outputs = map(int, shape.split("-"))
    model = onnx.parser.parse_model(TWO_LAYERS.format(inputs=inputs, outputs=outputs))
    rows = BALLAST // (4 * outputs)
    piece = np.random.default_rng(0).normal(size=PIECE // 4).astype(np.float32).tobytes()
    with data.open("wb") as stream:

        def place(name: str, dims: tuple[int, ...], size: int) -> None:
            tensor = model.graph.initializer.add(name=name, data_type=onnx.TensorProto.FLOAT)
            tensor.dims.extend(dims)
            tensor.data_location = onnx.TensorProto.EXTERNAL
            where = {"location": data.name, "offset": stream.tell(), "length": size}
            for key, value in where.items():
                tensor.external_data.add(key=key, value=str(value))

        for suffix in ("1", "2"):
            for name, array in layer_arrays(shape, suffix).items():
                place(name, array.shape, array.nbytes)
                stream.write(array.tobytes())
        place("table", (rows, outputs), 4 * rows * outputs)
        for start in range(0, 4 * rows * outputs, PIECE):
            stream.write(piece[: 4 * rows * outputs - start])
    add_choice(model)
    onnx.save(model, path)


def save_single(shape: str, path: Path) -> None:
    """One layer and a table in a single file, as large as protobuf allows."""
    inputs, _, outputs = map(int, shape.split("-"))
    model = onnx.parser.parse_model(ONE_LAYER.format(inputs=inputs, outputs=outputs))
    for name, array in layer_arrays(shape).items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    rows = SINGLE_FILE // (4 * outputs)
    table = np.random.default_rng(0).normal(size=PIECE // 4).astype(np.float32)
    tensor = model.graph.initializer.add(name="table", data_type=onnx.TensorProto.FLOAT)
    tensor.dims.extend((rows, outputs))
    tensor.raw_data = np.resize(table, rows * outputs).tobytes()
    add_choice(model)
    onnx.save(model, path)


def add_choice(model: onnx.ModelProto) -> None:
    """The number of the row of the table that is read."""
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([3]), "chosen"))


if __name__ == "__main__":
    make(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
