"""Where the bytes of external tensors are: location, offset and length, checked before any read.

A tensor takes count · bits / 8 bytes, rounded up. An absent length means what the tensor takes; any
other length is refused, and so is a location that leaves the model's folder or is no regular file.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx

from onnxfde.errors import ModelError
from onnxfde.graph.protos import TensorProto

PACKED_BITS = {
    value: bits
    for name, bits in (("INT4", 4), ("UINT4", 4), ("FLOAT4E2M1", 4), ("INT2", 2), ("UINT2", 2))
    if (value := getattr(TensorProto, name, None)) is not None
}
"""Bits per element of the types that ONNX packs into bytes, as far as this version has them."""
NUMBER = re.compile(r"[0-9]{1,18}")
"""An offset or length that fits into 64 bits; a file holds no more."""
INSIDE = "onnxfde.inside"
"""The key in a tensor's metadata that marks it as external data of the model file itself
(`large_files`)."""
PART_BYTES = 1 << 20
"""Bytes read at a time where not all are needed at once. Chosen; not tuned."""
SHOWN_CHARACTERS = 80
"""Characters of a location that a message shows. Chosen: one line of a terminal; not tuned."""


@dataclass(frozen=True)
class External:
    """Where an external tensor's bytes are."""

    file: Path
    offset: int
    length: int


def locate(tensor: TensorProto, folder: Path) -> External:
    """Find an external tensor's bytes; ModelError unless they can be read and fit its shape."""
    file, size = external_file(tensor, folder)
    offset, length = number(tensor, "offset") or 0, number(tensor, "length")
    needed = tensor_bytes(tensor)
    if length is not None and length != needed:
        raise ModelError(
            f"tensor '{tensor.name}' takes {needed} bytes, its external data in {file} has {length}"
        )
    if offset + needed > size:
        raise ModelError(f"external data file {file} is too short for tensor '{tensor.name}'")
    if not os.access(file, os.R_OK):
        raise ModelError(
            f"external data file {file} cannot be read: permission denied (tensor '{tensor.name}')"
        )
    return External(file, offset, needed)


def external_file(tensor: TensorProto, folder: Path) -> tuple[Path, int]:
    """The file in the model's folder that holds a tensor's bytes, and its size."""
    location = external_entry(tensor, "location")
    shown = repr(location[:SHOWN_CHARACTERS]) + ("…" if len(location) > SHOWN_CHARACTERS else "")
    if "\0" in location:
        raise ModelError(f"external data {shown} of tensor '{tensor.name}' is no file name")
    file = folder / location
    real, root = Path(os.path.realpath(file)), Path(os.path.realpath(folder))
    if not location or Path(location).is_absolute() or not real.is_relative_to(root):
        remedy = ": it is a link, copy the file" if os.path.islink(file) else ""
        raise ModelError(
            f"external data {shown} of tensor '{tensor.name}' lies outside the model's folder "
            f"{folder}{remedy}"
        )
    try:
        found = os.stat(file)
    except FileNotFoundError:
        raise ModelError(f"external data file {file} is missing (tensor '{tensor.name}')") from None
    except OSError as error:
        raise ModelError(
            f"external data {shown} of tensor '{tensor.name}' cannot be read ({error.strerror})"
        ) from None
    if not stat.S_ISREG(found.st_mode):
        raise ModelError(f"external data {file} of tensor '{tensor.name}' is no regular file")
    return file, found.st_size


def external_entry(tensor: TensorProto, key: str) -> str:
    """What a tensor says about its external data under a key; empty if nothing."""
    return str({entry.key: entry.value for entry in tensor.external_data}.get(key, ""))


def number(tensor: TensorProto, key: str) -> int | None:
    """The offset or length of external data, if there is one."""
    text = external_entry(tensor, key)
    if text and not NUMBER.fullmatch(text):
        shown = repr(text[:SHOWN_CHARACTERS])
        raise ModelError(
            f"tensor '{tensor.name}' has a bad offset or length in its external data: {shown}"
        )
    return int(text) if text else None


def tensor_bytes(tensor: TensorProto) -> int:
    """The bytes that a tensor takes, by its shape and type."""
    if any(d < 0 for d in tensor.dims):
        raise ModelError(f"tensor '{tensor.name}' has a negative length in its shape")
    if tensor.data_type == TensorProto.STRING:
        raise ModelError(f"tensor '{tensor.name}' holds strings, which cannot be external data")
    bits = PACKED_BITS.get(tensor.data_type)
    if bits is None:
        try:
            bits = 8 * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        except (KeyError, TypeError, ValueError):
            raise ModelError(
                f"tensor '{tensor.name}' has the unknown type {tensor.data_type}"
            ) from None
    return -(-math.prod(tensor.dims) * bits // 8)


def read_external(tensor: TensorProto, folder: Path) -> bytes:
    """The bytes of an external tensor."""
    place = locate(tensor, folder)
    return b"".join(parts_read(place, place.length))


def parts_read(place: External, at_once: int = PART_BYTES) -> Iterator[bytes]:
    """The bytes of an external tensor, one part after the other."""
    try:
        with place.file.open("rb") as stream:
            stream.seek(place.offset)
            left = place.length
            while left:
                part = stream.read(min(at_once, left))
                if not part:
                    break
                left -= len(part)
                yield part
    except OSError as error:
        raise ModelError(f"{place.file}: cannot be read ({error.strerror})") from None
    if left:
        raise ModelError(f"external data file {place.file} became shorter while it was read")


def is_in_model_file(tensor: TensorProto) -> bool:
    """Whether a tensor's bytes are in the model file that it was read from."""
    return any(entry.key == INSIDE for entry in tensor.metadata_props)


def set_external(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    """Point a tensor to its bytes in a file beside the model."""
    tensor.ClearField("raw_data")
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    tensor.data_location = TensorProto.EXTERNAL
