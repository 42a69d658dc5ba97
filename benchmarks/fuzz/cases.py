"""One input of the fuzzer: files in a folder and a command line, determined by a name and a number.

The folder holds `work`, where the command runs, `tmp`, its folder for temporary files, and
`outside.data`, a file that no model in `work` may touch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from benchmarks.fuzz.bases import Base, bases
from benchmarks.fuzz.byte_mutations import with_broken_bytes, with_broken_text
from benchmarks.fuzz.command_lines import Words, odd_words, usual_words
from benchmarks.fuzz.data_mutations import mutated_data
from benchmarks.fuzz.graph_mutations import mutated, value_names

MODEL, ORIGINAL, DATA = "in.onnx", "base.onnx", "rows.npz"
OUTSIDE = "outside.data"


@dataclass(frozen=True, eq=False)
class Case:
    """Files, a command line, and what it may change."""

    name: str
    number: int
    words: Words
    files: dict[str, bytes] = field(default_factory=dict)
    prepare: Callable[[Path], object] = lambda folder: None
    """What else the folder needs: links, pipes, files with holes."""
    stdin: bytes | None = None
    """What comes through a pipe to standard input."""
    stdout: str = "file"
    """Where standard output goes: file, full (/dev/full), closed, or broken (a pipe that nobody
    reads)."""

    def write(self, folder: Path) -> None:
        """Make the folder in which the command runs."""
        for name in ("work", "tmp"):
            (folder / name).mkdir(parents=True)
        (folder / OUTSIDE).write_bytes(b"\0" * 1000)
        for name, content in self.files.items():
            file = folder / "work" / name
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content)
        self.prepare(folder / "work")


def case_of(name: str, number: int) -> Case:
    """The input with this name and number; number 0 is the model as it is."""
    base, rng = bases()[name], Random(f"{name}:{number}")
    kind = rng.random() if number else 1.0
    raw, files, data = base.model.SerializeToString(), dict(base.files), base.data
    if kind < 0.35:
        raw = broken_model(base, rng)
    elif kind < 0.80:
        raw = mutated(base.model, rng).SerializeToString()
        raw = with_broken_bytes(raw, rng) if rng.random() < 0.05 else raw
    elif kind < 0.85 and files:
        file = rng.choice(list(files))
        files[file] = with_broken_bytes(files[file], rng)
    elif kind < 0.93:
        data = mutated_data(base.rows, data, rng)
    files |= {MODEL: raw, ORIGINAL: base.model.SerializeToString(), DATA: data}
    words = odd_words(rng) if 0.93 <= kind < 1.0 else usual_words(rng, 0.85 <= kind < 0.93)
    return Case(name, number, words, files)


def broken_model(base: Base, rng: Random) -> bytes:
    """A model whose bytes are broken, or the names in it."""
    raw = base.model.SerializeToString()
    if rng.random() < 0.15:
        return with_broken_text(raw, value_names(base.model), rng)
    other = rng.choice(list(bases().values())).model.SerializeToString()
    return with_broken_bytes(raw, rng, other)


def show(words: list[str]) -> str:
    """A command line for people, with long words cut."""
    return " ".join(ascii(w)[1:-1][:60] for w in words)
