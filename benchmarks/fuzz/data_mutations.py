"""Data files for --data that hold something else than a model's inputs, or are broken."""

from __future__ import annotations

import io
import zipfile
from random import Random
from typing import Any

import numpy as np

from benchmarks.fuzz.byte_mutations import with_broken_bytes
from onnxfde.numbers import Array

SHAPES = ("(1000000000000, 3)", "(-1, 3)", "(3,)", "()", "(2, 3, 4)", f"({'9' * 30}, 3)", "(0, 3)")
DESCRIPTIONS = (
    "<f4",
    "<f8",
    "|O",
    "<U5",
    "<c8",
    "|V3",
    "|b1",
    "<m8",
    "<i8",
    "|S9" + "9" * 8,
    "<f2",
)
"""Shapes and types that the head of an .npy file may claim."""


def npy(head: str, body: bytes) -> bytes:
    """An .npy file with any head."""
    text = head.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body


def lying(rng: Random) -> bytes:
    """An .npy file whose head may not fit its body."""
    kind, shape = rng.choice(DESCRIPTIONS), rng.choice(SHAPES)
    order = rng.choice((True, False))
    head = f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}"
    return npy(head, rng.randbytes(rng.choice((0, 12, 36, 1440))))


def odd_array(array: Array, rng: Random) -> Any:
    """Another shape, type or content."""
    with np.errstate(all="ignore"):
        changes = (
            lambda: array[:0], lambda: array[:1], lambda: array[:7], lambda: array[0],
            lambda: array.ravel(), lambda: array[..., None], lambda: np.float32(1.0),
            lambda: array.real.astype(np.float64) * 1e300,
            lambda: array.real.astype(np.float32) * 1e38,
            lambda: np.full(array.shape, np.nan), lambda: np.full(array.shape, np.inf),
            lambda: np.zeros(array.shape), lambda: array.astype(np.complex64),
            lambda: array.astype(str), lambda: array.astype(np.int8), lambda: array.astype(bool),
            lambda: np.asfortranarray(array), lambda: array.astype(">f4"),
            lambda: np.zeros(array.shape, "V4"), lambda: np.zeros(array.shape, "m8[s]"),
            lambda: array.astype(np.float16), lambda: np.repeat(array, 20, axis=0),
            lambda: np.full(array.shape, 5e-324), lambda: np.full(array.shape, 2**62),
        )  # fmt: skip
        return rng.choice(changes)()


def odd_arrays(rows: dict[str, Array], rng: Random) -> bytes:
    """An .npz in which arrays are missing, odd, or named wrongly."""
    found: dict[str, Any] = dict(rows)
    name = rng.choice(list(found))
    match rng.randrange(4):
        case 0:
            del found[name]
        case 1:
            found[rng.choice(("z", "y", "", "a/b", "é"))] = found.pop(name)
        case _:
            found[name] = odd_array(found[name], rng)
    stream = io.BytesIO()
    (np.savez_compressed if rng.random() < 0.3 else np.savez)(stream, **found)
    return stream.getvalue()


def odd_zip(rng: Random) -> bytes:
    """A zip archive that is no .npz, or holds .npy files with lying heads."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as z:
        for name in rng.sample(("x.npy", "y.npy", "x", "../x.npy", "z.npy"), rng.randint(0, 3)):
            z.writestr(name, rng.choice((b"", b"text", lying(rng), npy("{", b""))))
    return stream.getvalue()


def mutated_data(rows: dict[str, Array], whole: bytes, rng: Random) -> bytes:
    """A data file that is broken, lies, or does not fit."""
    match rng.randrange(6):
        case 0 | 1:
            return with_broken_bytes(whole, rng)
        case 2 | 3:
            return odd_arrays(rows, rng)
        case 4:
            return odd_zip(rng)
        case _:
            return lying(rng)
