"""How good are the networks of the benchmarks?

`python -m benchmarks.nets` (extra `paper`, and the shared folder) trains those that are not in the
cache, and compares their test errors with the least-squares quadratic's: no square layer fits the
training rows better.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from benchmarks.common import table
from benchmarks.common.scores import on_test_rows, quadratic_limit
from benchmarks.common.square_networks import TASKS, trained

HEADER = "task | shape | seed | test | least-squares quadratic"


def network_rows() -> Iterator[tuple[object, ...]]:
    """One line per network."""
    for task in TASKS.values():
        for seed in task.seeds:
            net = trained(task.name, seed)
            rows, found = net.rows, on_test_rows(onnx.load(net.path), net.rows)
            shape = f"{rows.x_train.shape[1]}-{task.hidden}-{rows.outputs}"
            if rows.classes:
                yield task.name, shape, seed, f"accuracy {found:.2%}", "–"
            else:
                yield task.name, shape, seed, f"MSE {found:.4g}", f"{quadratic_limit(rows):.4g}"


def main() -> None:
    """Train what is missing, and write the table."""
    table.write(__file__, "The networks of the benchmarks", HEADER, network_rows())


if __name__ == "__main__":
    main()
