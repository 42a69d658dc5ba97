"""Bytes changed without knowing what they mean: as disks, networks and attackers change them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

INTERESTING = (
    b"\x00", b"\xff", b"\x80", b"\x7f", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x08", b"\xff" * 9 + b"\x01", b"\x00\x00\x80\x7f", b"\x00\x00\xc0\x7f",
    b"\x99\x76\x96\x7e", b"\x01\x00\x00\x00", b"\xc3\x28",
)  # fmt: skip
"""Varints at the ends of their range, float32 ∞, NaN and 1e38, a denormal, broken UTF-8."""


def flip(raw: bytearray, rng: Random) -> None:
    """Flip one bit."""
    raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)


def overwrite(raw: bytearray, rng: Random) -> None:
    """Put interesting bytes in the place of others."""
    new, at = rng.choice(INTERESTING), rng.randrange(len(raw))
    raw[at : at + len(new)] = new


def truncate(raw: bytearray, rng: Random) -> None:
    """Drop the end."""
    del raw[rng.randrange(len(raw)) :]


def insert(raw: bytearray, rng: Random) -> None:
    """Put bytes between others."""
    at = rng.randrange(len(raw))
    raw[at:at] = rng.choice((rng.choice(INTERESTING), rng.randbytes(rng.randint(1, 9))))


def remove(raw: bytearray, rng: Random) -> None:
    """Drop a few bytes."""
    at = rng.randrange(len(raw))
    del raw[at : at + rng.choice((1, 2, 4, 16, 64))]


def repeat(raw: bytearray, rng: Random) -> None:
    """Write a part several times."""
    at = rng.randrange(len(raw))
    part = raw[at : at + rng.randint(1, 64)]
    raw[at:at] = part * rng.choice((1, 2, 50))


def exchange(raw: bytearray, rng: Random) -> None:
    """Copy a part over another one."""
    length = rng.randint(1, min(64, len(raw)))
    source, target = (rng.randrange(len(raw) - length + 1) for _ in range(2))
    raw[target : target + length] = raw[source : source + length]


BYTE_MUTATIONS: tuple[Callable[[bytearray, Random], None], ...] = (
    flip, flip, overwrite, overwrite, truncate, insert, remove, repeat, exchange,
)  # fmt: skip


def with_broken_bytes(raw: bytes, rng: Random, other: bytes = b"") -> bytes:
    """The bytes after one to four mutations; `other` is what may be spliced in."""
    found = bytearray(raw)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        if not found:
            break
        if other and rng.random() < 0.1:
            cut, start = rng.randrange(len(found)), rng.randrange(len(other))
            found[cut:] = other[start:]
        else:
            rng.choice(BYTE_MUTATIONS)(found, rng)
    return bytes(found)


def with_broken_text(raw: bytes, names: list[str], rng: Random) -> bytes:
    """The bytes with a name in them, once or everywhere, made text that is not UTF-8."""
    name = rng.choice(names or ["x"]).encode() or b"x"
    broken = rng.choice((b"\xff", b"\x80", b"\xc3", b"\xed\xa0\x80")) * len(name)
    return raw.replace(name, broken[: len(name)], rng.choice((1, -1)))
