"""Files and streams that are not what they seem: links, pipes, devices, archives that grow."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.fuzz.bases import bases
from benchmarks.fuzz.cases import Case
from benchmarks.fuzz.data_mutations import npy
from benchmarks.fuzz.trap_words import model_files, words

Prepare = Callable[[Path], object]
LONG = "a" * 300


def cases(
    name: str,
    base: str,
    *lines: str,
    prepare: Prepare = lambda folder: None,
    files: dict[str, bytes] | None = None,
) -> Iterator[Case]:
    """One case per command line on the files of a model, and others."""
    for line in lines:
        yield Case(name, 0, words(line), model_files(bases()[base]) | (files or {}), prepare)


def links(folder: Path) -> None:
    """Links to inputs, to nothing, and in a circle."""
    for name, target in {
        "link.onnx": "in.onnx", "link.data": "w.data", "link.npz": "rows.npz",
        "dangling.onnx": "nowhere.onnx", "loop1": "loop2", "loop2": "loop1", "self": ".",
    }.items():  # fmt: skip
        (folder / name).symlink_to(target)
    os.link(folder / "in.onnx", folder / "hard.onnx")
    if (folder / "w.data").exists():
        os.link(folder / "w.data", folder / "hard.data")


def make_pipes(folder: Path) -> None:
    """Pipes that nobody writes to."""
    for name in ("fifo", "fifo.ort"):
        os.mkfifo(folder / name)


def replace_data(folder: Path, target: str | None) -> None:
    """A pipe, or a link to `target`, in the place of a model's data file."""
    file = folder / "w.data"
    file.unlink()
    if target is None:
        os.mkfifo(file)
    else:
        file.symlink_to(target)


def make_holes(folder: Path) -> None:
    """Files of 3 GB that take no space."""
    for end in ("onnx", "ort", "npz"):
        with (folder / f"huge.{end}").open("wb") as stream:
            stream.truncate(3 << 30)


def file_traps() -> Iterator[Case]:
    """Outputs that are inputs, links, long names, and things that are no regular files."""
    yield from overwriting()
    yield from cases(
        "links", "mul",
        "optimize loop1 out.onnx", "optimize in.onnx loop1", "optimize in.onnx loop1/out.onnx",
        "optimize in.onnx out.onnx --data loop1", "optimize in.onnx out.onnx --json loop1",
        "optimize link.onnx link.onnx --eps 0", "optimize in.onnx hard.onnx --eps 0",
        "optimize in.onnx dangling.onnx", "optimize in.onnx self/out.onnx",
        "optimize in.onnx self/in.onnx", "inspect dangling.onnx", "inspect loop1 --json -",
        "verify in.onnx loop1", "optimize in.onnx out.onnx --json link.onnx",
        "optimize in.onnx out.onnx --data link.npz --json link.npz",
        prepare=links,
    )  # fmt: skip
    yield from cases(
        "names", "mul",
        f"optimize {LONG} out.onnx", f"optimize in.onnx {LONG}.onnx",
        f"optimize in.onnx {LONG}.ort",
        f"optimize in.onnx out.onnx --json {LONG}", f"optimize in.onnx out.onnx --data {LONG}",
        f"inspect {LONG}", f"verify in.onnx {LONG}", f"verify in.onnx {LONG}.ort",
        f"optimize in.onnx {LONG}/out.onnx", f"optimize {'a/' * 3000} out.onnx",
        f"optimize in.onnx {'b' * 250}.onnx", f"optimize in.onnx {'b' * 255}",
    )  # fmt: skip
    yield from cases(
        "fifos", "mul",
        "optimize fifo out.onnx", "optimize in.onnx fifo", "optimize in.onnx out.onnx --data fifo",
        "optimize in.onnx out.onnx --json fifo", "inspect fifo", "verify in.onnx fifo",
        "verify fifo.ort in.onnx", "verify in.onnx fifo.ort",
        prepare=make_pipes,
    )  # fmt: skip
    yield from cases(
        "devices", "mul",
        "optimize /dev/zero out.onnx", "inspect /dev/zero", "verify in.onnx /dev/zero",
        "optimize in.onnx out.onnx --data /dev/zero", "inspect /dev/null", "inspect /dev/full",
        "optimize in.onnx out.onnx --data /dev/null", "inspect /dev/stdin", "inspect .",
        "verify in.onnx . ", "optimize in.onnx out.onnx --data .",
    )  # fmt: skip
    yield from cases(
        "external-not-regular", "external",
        "optimize in.onnx out.onnx", "inspect in.onnx", "verify in.onnx base.onnx",
        prepare=partial(replace_data, target=None),
    )  # fmt: skip
    yield from cases(
        "external-loop", "external",
        "optimize in.onnx out.onnx", "inspect in.onnx", "verify in.onnx base.onnx",
        prepare=partial(replace_data, target="w.data"),
    )  # fmt: skip
    yield from cases(
        "external-device", "external", "optimize in.onnx out.onnx", "inspect in.onnx",
        prepare=partial(replace_data, target="/dev/zero"),
    )  # fmt: skip
    yield from cases(
        "huge-file", "mul",
        "optimize huge.onnx out.onnx", "inspect huge.onnx", "verify in.onnx huge.onnx",
        "verify in.onnx huge.ort", "optimize in.onnx out.onnx --data huge.npz",
        prepare=make_holes,
    )  # fmt: skip
    yield from data_traps()


def overwriting() -> Iterator[Case]:
    """Outputs that are files which an input reads, under their own name or another."""
    for base in ("external", "external-large"):
        yield from cases(
            f"overwrite-{base}", base,
            "optimize in.onnx w.data", "optimize in.onnx link.data --eps 0",
            "optimize in.onnx hard.data", "optimize in.onnx w.data --fail-if-unchanged",
            "optimize in.onnx out.onnx --json w.data", "optimize in.onnx in.onnx --json link.data",
            "inspect in.onnx --json w.data", "verify in.onnx base.onnx --json hard.data",
            "verify base.onnx in.onnx --json w.data", "optimize in.onnx in.onnx --eps 0",
            "optimize link.onnx in.onnx", "optimize in.onnx link.onnx", "optimize in.onnx w.ort",
            prepare=links, files={"w.data": b"{" + bases()[base].files["w.data"][1:]},
        )  # fmt: skip
    yield from cases(
        "overwrite-unchanged", "external-relu",
        "optimize in.onnx in.onnx.data", "optimize in.onnx in.onnx --int8 dynamic",
        "optimize in.onnx base.onnx", "optimize in.onnx in.onnx.data --json report.json",
    )  # fmt: skip
    yield from cases(
        "overwrite-data", "mul",
        "optimize in.onnx rows.npz --data rows.npz", "optimize in.onnx link.npz --data rows.npz",
        "optimize in.onnx out.onnx --data rows.npz --json rows.npz",
        "inspect in.onnx --data rows.npz --json link.npz",
        "optimize in.onnx out.onnx --json out.onnx", "optimize in.onnx in.onnx --json in.onnx",
        prepare=links,
    )  # fmt: skip


def sparse_npy(path: Path, shape: tuple[int, ...]) -> None:
    """A file with this many float32 zeros, which takes no space."""
    head = npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}", b"")
    path.write_bytes(head)
    os.truncate(path, len(head) + 4 * int(np.prod(shape)))


def bomb(size: int) -> bytes:
    """An .npz whose array is zeros, a thousand times as large as the file."""
    head = npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({size // 12}, 3), }}", b"")
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    start = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    body = start + block * (size >> 20) + packer.flush()
    name, sizes = b"x.npy", struct.pack("<III", 0, len(body), len(head) + size)
    common = struct.pack("<HHHHH", 20, 0, zipfile.ZIP_DEFLATED, 0, 0x21) + sizes
    entry = b"PK\1\2\x14\0" + common + struct.pack("<HHHHHII", len(name), 0, 0, 0, 0, 0, 0) + name
    local = b"PK\3\4" + common + struct.pack("<HH", len(name), 0) + name
    end = struct.pack("<HHHHIIH", 0, 0, 1, 1, len(entry), len(local) + len(body), 0)
    return local + body + entry + b"PK\5\6" + end


def lying(shape: str, kind: str = "<f4") -> bytes:
    """A short .npy that claims another shape."""
    return npy(f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}", bytes(36))


def saved(**arrays: object) -> bytes:
    """An .npz with these arrays."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def data_traps() -> Iterator[Case]:
    """Data files that lie, grow or hold something else."""
    x = np.random.default_rng(0).uniform(-1, 1, (120, 3)).astype(np.float32)
    contents = {
        "lying-rows": lying("(1000000000000, 3)"), "lying-negative": lying("(-5, 3)"),
        "lying-digits": lying(f"({'9' * 5000}, 3)"), "lying-type": lying("(3, 3)", "<f4x"),
        "lying-object": lying("(3, 3)", "|O"), "lying-strings": lying("(3, 3)", "<U999999999"),
        "lying-nested": lying("(" * 500), "not-a-head": npy("{", b""), "empty": b"",
        "nan-labels": saved(x=x, y=np.full(120, np.nan)), "nan-rows": saved(x=x * np.nan),
        "inf-labels": saved(x=x, y=np.full((120, 2), np.inf)), "no-rows": saved(x=x[:0]),
        "one-row": saved(x=x[:1]), "huge-values": saved(x=x * 1e38),
        "huge-doubles": saved(x=x.astype(np.float64) * 1e300), "text": saved(x=x.astype(str)),
        "other-name": saved(z=x), "huge-labels": saved(x=x, y=np.full(120, 1e300)),
        "negative-labels": saved(x=x, y=np.full(120, -5)),
        "far-labels": saved(x=x, y=np.full(120, 2**62)),
        "scalar": saved(x=np.float32(1)), "bool-labels": saved(x=x, y=np.ones(120, bool)),
    }  # fmt: skip
    for name, content in contents.items():
        yield from cases(
            f"data-{name}", "mul",
            "optimize in.onnx out.onnx --data d.npz --json report.json",
            "optimize in.onnx in.onnx --data d.npz --int8 static --json report.json",
            "verify in.onnx base.onnx --data d.npz --tolerance 0.1", "inspect in.onnx --data d.npz",
            files={"d.npz": content},
        )  # fmt: skip
    large = ("optimize in.onnx out.onnx --data d.npz", "verify in.onnx base.onnx --data d.npz")
    yield from cases("data-bomb", "mul", *large, prepare=write_bomb)
    shape = (10_000_000, 3)
    yield from cases(
        "data-ten-million-rows", "mul", *large,
        prepare=lambda folder: sparse_npy(folder / "d.npz", shape),
    )  # fmt: skip


BOMB_BYTES = 3 << 29
"""What the zip bomb holds; the file is a thousandth of it."""


def write_bomb(folder: Path) -> None:
    """The zip bomb as a data file."""
    (folder / "d.npz").write_bytes(bomb(BOMB_BYTES))


STREAMED = (
    "optimize in.onnx out.onnx", "optimize in.onnx out.onnx --json -", "inspect in.onnx",
    "inspect in.onnx --json -", "verify in.onnx base.onnx", "verify in.onnx base.onnx --json -",
    "--help", "--version", "optimize --help", "inspect missing.onnx",
)  # fmt: skip


def stream_traps() -> Iterator[Case]:
    """Standard streams that are closed, full, or pipes; and lines that are no commands."""
    files = model_files(bases()["mul"])
    for stdout in ("full", "closed", "broken"):
        for line in STREAMED:
            written = words(line)
            yield Case(f"stdout-{stdout}", 0, written, files, stdout=stdout)
    for base in ("mul", "relu"):
        raw = bases()[base].model.SerializeToString()
        for line in (
            "optimize /dev/stdin out.onnx", "inspect /dev/stdin", "verify in.onnx /dev/stdin",
            "optimize in.onnx out.onnx --data /dev/stdin", "optimize /proc/self/fd/0 out.onnx",
            "optimize - out.onnx",
        ):  # fmt: skip
            yield Case(f"stdin-{base}", 0, words(line), files, stdin=raw)
    for line in (
        "optimize", "optimize in.onnx", "nothing", "--nothing", "inspect in.onnx in.onnx",
        "verify in.onnx", "optimize in.onnx out.onnx --eps", "bench missing.onnx",
        "bench rows.npz --seconds 0.01", "demo --save in.onnx", "optimize in.onnx out.onnx --eps 0 "
        "--eps 0", "inspect --data", "verify base.onnx rows.npz", "verify rows.npz base.onnx",
    ):  # fmt: skip
        yield Case("lines", 0, words(line), files)
    yield from integer_outputs()


def integer_outputs() -> Iterator[Case]:
    """Outputs that are integers: equal is equal, and different is not within a tolerance."""
    model, other = (bases()["integers"].model.SerializeToString() for _ in range(2))
    other = other.replace(b"Add", b"Sub")
    for raw, code in ((model, 0), (other, 1)):
        files = {"in.onnx": model, "base.onnx": raw}
        yield Case(
            "integer-outputs", 0, words("verify in.onnx base.onnx --tolerance 0.1", code), files
        )
