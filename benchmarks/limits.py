"""Is a limit on the error kept, and does the interval beside an error hold it, on fresh inputs?

`python -m benchmarks.limits` makes random networks with one or two outputs, one of which may be a
thousand times smaller, and gives each to `onnxfde optimize --max-error 5%` with a few hundred rows.
Of the error of each output that the command shows, and of its interval, it is seen on 5,000 other
rows of the same kind whether they are true.

Inputs are uniform, normal, or, where nothing is squared, of Student's t with 10 degrees of freedom,
all mixed: the losses of rows, squares of changes, then have finite fourth moments. With fewer
degrees, and squares, an error has no true value: 5,000 rows give another one each time.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from typer.testing import CliRunner

from benchmarks.common import table
from onnxfde.command.main import app
from onnxfde.numbers import Array, FloatArray

NETWORKS = 500
LIMIT = 0.05
FRESH_ROWS = 5_000
NONE_LEFT = 1e-9
"""An error below this is none: nothing was merged, or only what is equal."""
ACTIVATIONS = ("Relu", "Tanh", "Sigmoid", "Gelu", "Mul")
"""Mul: the square."""
DRAWS: dict[str, Callable[[np.random.Generator, tuple[int, int]], FloatArray]] = {
    "uniform": lambda rng, size: rng.uniform(-1.7, 1.7, size),
    "normal": lambda rng, size: rng.normal(size=size),
    "t": lambda rng, size: rng.standard_t(10, size),
}
"""Inputs, mixed: of the last kind only where nothing is squared."""
HEADER = (
    "outputs | rows | networks | smaller | outputs measured | above 5 % on fresh rows | at most"
    " | held by the interval | below it | above it | width, of the error"
)


@dataclass(frozen=True)
class Case:
    """A random network and rows for it."""

    model: onnx.ModelProto
    data: Array
    fresh: Array
    heads: int

    @classmethod
    def drawn(cls, seed: int) -> Case:
        """One of a kind that the seed decides."""
        rng = np.random.default_rng(seed)
        inputs, depth, heads = (int(rng.integers(4, 12)), int(rng.integers(1, 3)), 1 + seed % 2)
        lines, weights = [], {}
        last, width = "x", inputs
        for number in range(depth):
            units = int(rng.integers(16, 49))
            weights[f"W{number}"] = rng.normal(size=(width, units)) / np.sqrt(width)
            weights[f"W{number}"] *= rng.gamma(1.0, size=units)
            weights[f"b{number}"] = rng.normal(size=units) * 0.3
            kind = str(rng.choice(ACTIVATIONS))
            read = f"h{number}, h{number}" if kind == "Mul" else f"h{number}"
            lines.append(f"h{number} = Gemm({last}, W{number}, b{number})")
            lines.append(f"a{number} = {kind}({read})")
            last, width = f"a{number}", units
        for head in range(heads):
            size = int(rng.integers(1, 4))
            scale = 1e-3 if head else 1.0
            weights[f"V{head}"] = scale * rng.normal(size=(width, size)) / np.sqrt(width)
            weights[f"c{head}"] = scale * rng.normal(size=size)
            lines.append(f"y{head} = Gemm({last}, V{head}, c{head})")
        outputs = ", ".join(f"float[N, K{head}] y{head}" for head in range(heads))
        text = (
            f'<ir_version: 9, opset_import: ["": 20]> g (float[N, {inputs}] x) => ({outputs}) '
            f"{{ {' '.join(lines)} }}"
        )
        model = onnx.parser.parse_model(text)
        for name, value in weights.items():
            model.graph.initializer.append(
                onnx.numpy_helper.from_array(value.astype(np.float32), name)
            )
        rows, mix = int(rng.choice([300, 600, 1200])), rng.normal(size=(inputs, inputs))
        squares = any(node.op_type == "Mul" for node in model.graph.node)
        draw = DRAWS[str(rng.choice(list(DRAWS)[: 2 if squares else 3]))]

        def sample(count: int) -> Array:
            found = draw(rng, (count, inputs)) @ mix / np.sqrt(inputs)
            return np.asarray(found.astype(np.float32))

        return cls(model, sample(rows), sample(FRESH_ROWS), heads)


def measured(seed: int) -> dict[str, Any]:
    """What the command shows of one network, and what is true."""
    case = Case.drawn(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        onnx.save(case.model, folder / "in.onnx")
        np.savez(folder / "data.npz", x=case.data)
        words = ["optimize", "in.onnx", "out.onnx", "--max-error", "5%", "--data", "data.npz"]
        files = [str(folder / word) if "." in word else word for word in words]
        done = CliRunner().invoke(app, [*files, "--json", str(folder / "r.json"), "-q"])
        found: dict[str, Any] = {"seed": seed, "heads": case.heads, "rows": len(case.data)}
        if done.exit_code:
            return found | {"said": done.output.strip().splitlines()[-1:]}
        report = json.loads((folder / "r.json").read_text())
        found["left"] = report["parameters"]["after"] / report["parameters"]["before"]
        if report["unchanged"]:
            return found
        before, after = (run(folder / file, case.fresh) for file in ("in.onnx", "out.onnx"))
        shown = report["verification"]["outputs"]
        found["outputs"] = [
            {
                "shown": one["relative_l2"],
                "interval": one["relative_l2_interval"],
                "fresh": float(np.linalg.norm(b - a) / np.linalg.norm(a - a.mean(axis=0))),
            }
            for one, a, b in zip(shown, before, after, strict=True)
        ]
    return found


def run(file: Path, rows: Array) -> list[Array]:
    """The outputs of a model."""
    session = ort.InferenceSession(file, providers=["CPUExecutionProvider"])
    return [np.asarray(y, dtype=np.float64) for y in session.run(None, {"x": rows})]


def lines_of(found: list[dict[str, Any]]) -> Iterator[tuple[object, ...]]:
    """A line for each number of outputs and rows, and one for all."""
    kinds = sorted({(one["heads"], one["rows"]) for one in found})
    groups = [
        (heads, f"{rows:,}", [one for one in found if (one["heads"], one["rows"]) == (heads, rows)])
        for heads, rows in kinds
    ]
    for heads, rows, group in [*groups, ("all", "all", found)]:
        outputs = [out for one in group for out in one.get("outputs", [])]
        changed = [out for out in outputs if (out["fresh"] or 0) > NONE_LEFT and out["interval"]]
        above = [out["fresh"] for out in outputs if out["fresh"] > LIMIT]
        low = sum(out["fresh"] < out["interval"][0] for out in changed)
        high = sum(out["fresh"] > out["interval"][1] for out in changed)
        held = len(changed) - low - high
        share = f"{held} ({100 * held / len(changed):.1f} %)" if changed else "–"
        smaller = sum(one.get("left", 1.0) < 1 for one in group)
        most = f"{max(out['fresh'] for out in outputs):.3f}" if outputs else "–"
        widths = [(out["interval"][1] - out["interval"][0]) / out["shown"] for out in changed]
        width = f"{np.median(widths):.2f}" if widths else "–"
        counts = (len(group), smaller, len(changed), len(above))
        yield (heads, rows, *counts, most, share, low, high, width)


def main() -> None:
    """All networks, on all cores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, default=NETWORKS)
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    given = parser.parse_args()
    with multiprocessing.get_context("spawn").Pool(given.processes) as pool:
        found = sorted(
            pool.imap_unordered(measured, range(given.networks)), key=lambda one: one["seed"]
        )
    for one in found:
        if "said" in one:
            print(one["seed"], *one["said"])
    sections = [table.Section("", HEADER, list(lines_of(found)))]
    table.write_sections(__file__, "Limits on errors, and intervals, on fresh inputs", sections)


if __name__ == "__main__":
    main()
