"""Large model files are read without their weights, which stay where they are in the file.

    tensor with raw bytes  ⇄  tensor that names the offset and length of these bytes in the file

Such a tensor is external data of the model file itself, and marked: everything that can work with
external data works with it, and in a file that is written its bytes are inside again. Both ways are
a walk through protobuf's wire format: a message is a sequence of fields, each of them a key,
perhaps a length, and a value. Only messages on the way to a large tensor are entered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from google.protobuf.message import DecodeError

from onnxfde.errors import ModelError
from onnxfde.graph.external_data import (
    INSIDE,
    External,
    is_in_model_file,
    locate,
    read_external,
    set_external,
    tensor_bytes,
)
from onnxfde.graph.protos import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto
from onnxfde.graph.tensors import copy_of, external_tensors

LARGE_FILE = 2**26
"""Bytes from which a file is read without its weights. Chosen: 64 MB in memory several times over
does not matter; not tuned."""
LARGE_TENSOR = 2**20
"""Bytes from which a tensor of such a file stays in it. Chosen; not tuned."""
ENTERED = {
    kind.DESCRIPTOR.full_name
    for kind in (ModelProto, GraphProto, NodeProto, AttributeProto, TensorProto)
}
"""The messages that may hold a large tensor; sparse tensors and functions are left as they are."""
PLAIN = {"dims", "data_type", "name", "doc_string", "metadata_props"}
"""The fields that a tensor may have beside its raw bytes to be taken out of the file."""
RAW_DATA = TensorProto.RAW_DATA_FIELD_NUMBER
VARINT, EIGHT_BYTES, LENGTH_DELIMITED, FOUR_BYTES = 0, 1, 2, 5
"""The ways in which protobuf stores a value; groups, which ONNX does not use, are not read."""
LONGEST_VARINT = 10
"""Bytes of the longest number that protobuf writes."""

Piece = bytes | External
"""A part of a file that is written: bytes, or where they are found."""


class Buffer(Protocol):
    """Bytes that may be a mapped file."""

    def __getitem__(self, index: Any, /) -> Any: ...  # noqa: D105


@dataclass(frozen=True)
class Field:
    """A field in a buffer: where it begins, where its value begins, and where it ends."""

    number: int
    wire: int
    start: int
    value: int
    end: int


def varint(raw: Buffer, at: int, end: int) -> tuple[int, int]:
    """A number and the place behind it."""
    found = 0
    for i in range(min(LONGEST_VARINT, end - at)):
        byte = raw[at + i]
        found |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return found, at + i + 1
    raise DecodeError("a number has no end")


def fields(raw: Buffer, start: int, end: int) -> Iterator[Field]:
    """The fields of a message."""
    while start < end:
        key, value = varint(raw, start, end)
        number, wire = divmod(key, 8)
        if wire == LENGTH_DELIMITED:
            length, value = varint(raw, value, end)
            stop = value + length
        elif wire == VARINT:
            stop = varint(raw, value, end)[1]
        elif wire in (EIGHT_BYTES, FOUR_BYTES):
            stop = value + (8 if wire == EIGHT_BYTES else 4)
        else:
            raise DecodeError("a field of an unknown kind")
        if stop > end:
            raise DecodeError("a field is cut")
        yield Field(number, wire, start, value, stop)
        start = stop


@dataclass(frozen=True)
class Rewriting:
    """Copies a message with other tensors."""

    raw: Buffer
    is_entered: Callable[[Field], bool]
    """Whether a message may hold a tensor that is to be changed."""
    tensor: Callable[[Buffer, int, int], list[Piece]]
    """The new form of the tensor between two places."""

    def message(self, kind: Any, start: int, end: int) -> list[Piece]:
        """The message of a kind between two places, in pieces."""
        if kind is TensorProto.DESCRIPTOR:
            return self.tensor(self.raw, start, end)
        pieces, done = list[Piece](), start
        for field in fields(self.raw, start, end):
            found = kind.fields_by_number.get(field.number)
            inner = found.message_type if found is not None else None
            if inner is None or inner.full_name not in ENTERED or not self.is_entered(field):
                continue
            new = self.message(inner, field.value, field.end)
            key = varint_bytes(8 * field.number + LENGTH_DELIMITED)
            pieces += [self.raw[done : field.start], key, varint_bytes(total_bytes(new)), *new]
            done = field.end
        return [*pieces, self.raw[done:end]]


def varint_bytes(number: int) -> bytes:
    """A number as protobuf writes it."""
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def total_bytes(pieces: list[Piece]) -> int:
    """The bytes of all pieces together."""
    return sum(p.length if isinstance(p, External) else len(p) for p in pieces)


def light_bytes(raw: Buffer, size: int, name: str) -> bytes:
    """A model in a file called `name` as bytes, in which large tensors name their place there."""

    def tensor(raw: Buffer, start: int, end: int) -> list[Piece]:
        light = light_tensor(raw, start, end, name)
        return [raw[start:end] if light is None else light.SerializeToString()]

    def is_entered(field: Field) -> bool:
        return field.wire == LENGTH_DELIMITED and field.end - field.value >= LARGE_TENSOR

    pieces = Rewriting(raw, is_entered, tensor).message(ModelProto.DESCRIPTOR, 0, size)
    return b"".join(piece for piece in pieces if isinstance(piece, bytes))


def light_tensor(raw: Buffer, start: int, end: int, name: str) -> TensorProto | None:
    """The tensor between two places without its bytes; None if it is not just shape and bytes."""
    found = [field for field in fields(raw, start, end) if field.number == RAW_DATA]
    if len(found) != 1 or found[0].end - found[0].value < LARGE_TENSOR:
        return None
    length = found[0].end - found[0].value
    tensor = TensorProto.FromString(raw[start : found[0].start] + raw[found[0].end : end])
    try:
        if {field.name for field, _ in tensor.ListFields()} - PLAIN or tensor_bytes(
            tensor
        ) != length:
            return None
    except ModelError:
        return None
    set_external(tensor, name, found[0].value, length)
    tensor.metadata_props.add(key=INSIDE, value="1")
    return tensor


def whole_pieces(model: ModelProto, folder: Path | None) -> list[Piece]:
    """The file of a model, in which the tensors that belong inside have their bytes again."""
    raw, mark = model.SerializeToString(), INSIDE.encode()
    if not any(map(is_in_model_file, external_tensors(model))):
        return [raw]

    def is_entered(field: Field) -> bool:
        return mark in raw[field.value : field.end]

    def tensor(raw: Buffer, start: int, end: int) -> list[Piece]:
        return whole_tensor(TensorProto.FromString(raw[start:end]), folder or Path())

    return Rewriting(raw, is_entered, tensor).message(ModelProto.DESCRIPTOR, 0, len(raw))


def file_bytes(model: ModelProto, folder: Path) -> int:
    """The size of the file of a model."""
    if not any(map(is_in_model_file, external_tensors(model))):
        return int(model.ByteSize())
    return total_bytes(whole_pieces(model, folder))


def whole_tensor(tensor: TensorProto, folder: Path) -> list[Piece]:
    """A tensor with its bytes, in the order of fields that protobuf writes."""
    if not is_in_model_file(tensor):
        return [tensor.SerializeToString()]
    place, behind = locate(tensor, folder), TensorProto()
    take_inside(tensor)
    if tensor.HasField("doc_string"):
        behind.doc_string = tensor.doc_string
    behind.metadata_props.extend(tensor.metadata_props)
    for name in ("doc_string", "metadata_props"):
        tensor.ClearField(name)
    key = varint_bytes(8 * RAW_DATA + LENGTH_DELIMITED) + varint_bytes(place.length)
    return [tensor.SerializeToString(), key, place, behind.SerializeToString()]


def whole_model(model: ModelProto, folder: Path | None) -> ModelProto:
    """The model itself or, if tensors of it are in the file that it was read from, a whole copy."""
    return with_tensors_inside(model, folder, is_in_model_file)


def in_one_piece(model: ModelProto, folder: Path | None) -> ModelProto:
    """The model itself or, if tensors of it are in any file, a copy that needs none."""
    return with_tensors_inside(model, folder, lambda _: True)


def with_tensors_inside(
    model: ModelProto, folder: Path | None, wanted: Callable[[TensorProto], bool]
) -> ModelProto:
    """The model itself or, if it has external tensors that are wanted, a copy with them inside."""
    if not any(map(wanted, external_tensors(model))):
        return model
    copy = copy_of(model)
    for tensor in filter(wanted, external_tensors(copy)):
        raw = read_external(tensor, folder or Path())
        take_inside(tensor)
        tensor.raw_data = raw
    return copy


def take_inside(tensor: TensorProto) -> None:
    """Remove what says that a tensor is external."""
    for name in ("external_data", "data_location"):
        tensor.ClearField(name)
    for entry in [e for e in tensor.metadata_props if e.key == INSIDE]:
        tensor.metadata_props.remove(entry)
