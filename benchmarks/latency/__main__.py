"""How much faster and smaller are merged networks, on this processor and on emulated ARM?

`python -m benchmarks.latency` (extras `paper` and `plot`, the shared folder, and `onnxfde target
setup arm64`) measures every variant of every network with `onnxfde.bench`, and writes
`results.json`, `RESULTS.md` and `latency.png`. `--only 64-256-64,…` measures some networks again
and keeps the results of the others, `--part cpu` or `--part arm` measures on some targets only, and
`--report` measures nothing and writes the tables and the plot from `results.json`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import onnxfde
from benchmarks.latency import report
from benchmarks.latency.networks import Net, nets, variants

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.json"
ARM = ("arm64:cortex-a53", "arm64:cortex-a76")
BATCHES = (1, 64)
"""Batch sizes of the networks that allow any; chosen."""
SECONDS = 15.0
"""How long each target and batch size is measured; chosen."""
TIMEOUT = 3600.0
"""Seconds after which a target is given up; chosen."""
PARTS = {"cpu": ((1, ("cpu",)), (2, ("cpu",))), "arm": ((1, ARM),)}
"""Threads and targets of each part; this processor with one thread and with two."""


def measured(net: Net, part: str, known: dict[str, Any]) -> dict[str, Any]:
    """All variants on the targets of a part, together with the known results of other parts."""
    files = variants(net)
    batches = BATCHES if net.free_batch else (1,)
    targets = dict(known.get("targets", {}))
    for threads, names in PARTS[part]:
        found = onnxfde.bench(
            list(files.values()),
            targets=names,
            batches=batches,
            threads=threads,
            seconds=SECONDS,
            timeout=TIMEOUT,
        )
        content = json.loads(found.to_json())
        for place in content["targets"]:
            for name, line in zip(files, place["lines"], strict=True):
                line["file"] = name
            targets[f"{place['target']}, {threads}"] = {**place, "threads": threads}
        models = content["models"]
    for name, model in zip(files, models, strict=True):
        model["file"] = name
    return {"models": models, "targets": dict(sorted(targets.items(), key=local_first))}


def local_first(entry: tuple[str, Any]) -> tuple[bool, str]:
    """Sort key of the targets: this machine first, then by name."""
    return entry[1]["target"] != "cpu", entry[0]


def main() -> None:
    """Measure what was asked for, then write tables and plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names of networks, separated by commas")
    parser.add_argument("--part", choices=PARTS, help="only this machine, or only ARM")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    wanted = set(filter(None, options.only.split(",")))
    for name, get in ({} if options.report else nets()).items():
        if not wanted or name in wanted:
            net = get()
            for part in [options.part] if options.part else PARTS:
                print(f"measuring {net.name}, {part}", flush=True)
                results[net.name] = measured(net, part, results.get(net.name, {}))
                RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    report.write(results, FOLDER)


if __name__ == "__main__":
    main()
