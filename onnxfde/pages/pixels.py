"""An array of numbers as the pixels of an image that stands in the page itself (PNG, base64)."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

from onnxfde.numbers import FloatArray

MINUS, PLUS = (59, 111, 214), (217, 115, 26)
"""Colours of negative and positive numbers (`--minus` and `--plus` of the style); 0 is clear, so
that the page may be light or dark."""


def signed_image(values: FloatArray) -> str:
    """Numbers from −1 to 1 as an image, one pixel each, as an address that holds it."""
    values = np.clip(np.nan_to_num(values), -1.0, 1.0)
    pixels = np.empty((*values.shape, 4), np.uint8)
    pixels[..., :3] = np.where(values[..., None] < 0, MINUS, PLUS)
    pixels[..., 3] = np.round(255 * np.abs(values))
    encoded = base64.b64encode(png(pixels)).decode()
    return f"data:image/png;base64,{encoded}"


def png(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    """Pixels with red, green, blue and opacity as a file."""
    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">2I5B", width, height, 8, 6, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, data) for kind, data in parts)


def chunk(kind: bytes, data: bytes) -> bytes:
    """A part of such a file."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
