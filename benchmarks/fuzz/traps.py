"""Hand-made traps: files and command lines that once ended badly, or might.

Each trap has a name and several command lines; they are numbered.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from benchmarks.fuzz.cases import Case
from benchmarks.fuzz.file_traps import file_traps, stream_traps
from benchmarks.fuzz.model_traps import USUAL, huge_models, odd_models
from benchmarks.fuzz.trap_words import model_files, words


@functools.cache
def traps() -> dict[str, list[Case]]:
    """All traps by name, with one case per command line."""
    found: dict[str, list[Case]] = {}
    for case in (*model_traps(), *file_traps(), *stream_traps()):
        numbered = found.setdefault(case.name, [])
        numbered.append(Case(**{**vars(case), "number": len(numbered)}))
    return found


def model_traps() -> Iterator[Case]:
    """Models that are wrong or ask for too much."""
    for name, model, lines in (*odd_models(), *huge_models()):
        for line in lines or USUAL:
            yield Case(name, 0, words(line), model_files(model))


def trap_case(name: str, number: int) -> Case:
    """A trap with one of its command lines."""
    return traps()[name][number]
