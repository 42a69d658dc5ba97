"""A network of the benchmark `real` that needs no packages: relu(x·V)·W, judged by its sign."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper as nh
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

from benchmarks.real.scores import class_score, first_outputs
from benchmarks.real.subject import Material, Run, Score, Subject

INPUTS, HIDDEN, ROWS = 6, 24, 200


def prepare(folder: Path) -> Material:
    """Write the network and its rows."""
    material = Material(folder / "original.onnx", folder / "fit.npz")
    if not material.model.exists():
        rng = np.random.default_rng(0)
        shapes = {"first": (INPUTS, HIDDEN), "second": (HIDDEN, 2)}
        weights = [nh.from_array(rng.normal(size=s).astype(np.float32), n)
                   for n, s in shapes.items()]  # fmt: skip
        nodes = [
            make_node("MatMul", ["x", "first"], ["h"]),
            make_node("Relu", ["h"], ["r"]),
            make_node("MatMul", ["r", "second"], ["y"]),
        ]
        first, last = (
            make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", size])
            for name, size in (("x", INPUTS), ("y", 2))
        )
        graph = make_graph(nodes, "tiny", [first], [last], weights)
        model = make_model(graph, opset_imports=[make_opsetid("", 17)], ir_version=8)
        onnx.save(model, material.model)
        x = rng.normal(size=(2 * ROWS, INPUTS)).astype(np.float32)
        np.savez(material.data, x=x[:ROWS])
        np.save(folder / "judge.npy", x[ROWS:])
    return material


def score(folder: Path, run: Run) -> Score:
    """Whether the first output is larger where the first input is positive."""
    x = np.load(folder / "judge.npy")
    outputs = np.concatenate([*first_outputs(run, "x", x, 50)])
    return class_score(outputs, (x[:, 0] < 0).astype(np.int64))


SUBJECTS = (
    Subject("tiny", "made here", "accuracy", f"{ROWS} rows", f"{ROWS} others", prepare, score, 50),
)
