"""Small models to sweep over, and a pool that computes points in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx

from onnxfde.options import Options
from onnxfde.pages.sweep_pages import ModelSweep
from onnxfde.sweeping.ladder import SizeLadder, rungs_of, swept_models
from onnxfde.sweeping.points import PointOutcome, PointTask, run_point
from onnxfde.sweeping.results_folder import opened_results
from onnxfde.sweeping.sweep import Pool, Sweep
from tests.models import mlp, twins

SIZES = (("100%", 1.0), ("50%", 0.5), ("30%", 0.3))


class Here:
    """Computes points one after the other, and remembers which."""

    def __init__(self, most: int = 1000) -> None:
        self.computed: list[tuple[str, str]] = []
        self.most = most

    def outcomes(self, tasks: Iterator[PointTask]) -> Iterator[tuple[PointTask, PointOutcome]]:
        for task in tasks:
            if len(self.computed) == self.most:
                raise KeyboardInterrupt
            self.computed.append((task.model_name, task.size))
            yield task, run_point(task)


def saved_models(folder: Path, count: int = 2) -> list[Path]:
    """Models of 8 neurons, each of which is there twice, with some noise."""
    files = [folder / f"net{number}.onnx" for number in range(count)]
    for number, file in enumerate(files):
        rng = np.random.default_rng(number)
        w, b, v, c = twins(distinct=8, copies=2, inputs=6, outputs=3)
        noise = 0.01 * rng.normal(size=w.shape)
        onnx.save(mlp((w + noise).astype(np.float32), b, v, c), file)
    np.savez(
        folder / "data.npz", x=np.random.default_rng(9).normal(size=(300, 6)).astype(np.float32)
    )
    return files


def ladder_for(models: list[Path], data: Path | None = None) -> SizeLadder:
    options = Options(quotient="refit")
    return SizeLadder(swept_models(models, data), rungs_of(SIZES), options=options)


def swept_into(out: Path, ladder: SizeLadder, pool: Pool) -> list[ModelSweep]:
    """Sweep without measuring times."""
    with opened_results(out, [model.path for model in ladder.models]) as results:
        sweep = Sweep(ladder, results, "onnxfde sweep …", latency=False)
        sweep.plan()
        return sweep.run(pool)
