"""One step of the benchmark in a process of its own, so that the one that measures stays small.

`python -m benchmarks.real.worker MODULE SUBJECT FOLDER STEP` prints a JSON object. MODULE has a
tuple SUBJECTS; STEP is `prepare`, `judge FILE [timed]` or `int8 static|dynamic FILE`.
"""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path

from benchmarks.common.found_cells import Result
from benchmarks.real.eight_bits import quantized
from benchmarks.real.judging import judged
from benchmarks.real.subject import Subject


def subject_of(module: str, name: str) -> Subject:
    """A subject by name."""
    every: tuple[Subject, ...] = import_module(module).SUBJECTS
    return next(subject for subject in every if subject.name == name)


def done(module: str, name: str, place: str, action: str, *words: str) -> Result:
    """Do one step; what was found."""
    subject, folder = subject_of(module, name), Path(place)
    folder.mkdir(parents=True, exist_ok=True)
    material = subject.prepare(folder)
    if action == "prepare":
        labelled = material.labelled and str(material.labelled)
        return {"model": str(material.model), "data": str(material.data),
                "words": material.words, "labelled": labelled}  # fmt: skip
    if action == "judge":
        return judged(subject, folder, material.model, Path(words[0]), "timed" in words)
    quantized(words[0], material, Path(words[1]))
    return {}


if __name__ == "__main__":
    with redirect_stdout(sys.stderr):
        figures = done(*sys.argv[1:])
    print(json.dumps(figures))
