"""How long one product W Wᵀ in float64 takes: the unit in which `benchmarks.speed` gives times.

`python -m benchmarks.common.gram_unit NEURONS INPUTS` prints the median wall and CPU time as JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import numpy as np

LEAST_SECONDS = 0.5
"""How long products are repeated at least; chosen."""
LEAST_REPEATS = 3
"""How many products at least; chosen."""


def gram_seconds(neurons: int, inputs: int) -> dict[str, float]:
    """Median times of one product, after one that warms up."""
    weights = np.random.default_rng(0).normal(size=(neurons, inputs))
    wall, cpu = list[float](), list[float]()
    weights @ weights.T
    while len(wall) < LEAST_REPEATS or sum(wall) < LEAST_SECONDS:
        start, used = time.perf_counter(), time.process_time()
        weights @ weights.T
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - used)
    return {"wall": statistics.median(wall), "cpu": statistics.median(cpu)}


if __name__ == "__main__":
    print(json.dumps(gram_seconds(int(sys.argv[1]), int(sys.argv[2]))))
