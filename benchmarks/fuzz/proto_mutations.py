"""Messages changed by what their descriptors say: any field of any message, at any depth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

EDGE_INTEGERS = (-1, 0, 1, 2, 7, 77, 255, 65536, 2**31 - 1, 2**31, 2**33, 2**63 - 1, -(2**63))
EDGE_FLOATS = (
    float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0, 1e38, -3e38, 1e-45, 1e18, 1e300,
    5e-324,
)  # fmt: skip
ODD_TEXTS = (
    "", "x", "y", "h", "W", "\0", "a\0b", "\n", "a\nb", "\x1b[2J", "é", "ε", "🙂", "../x", "/", ".",
    "a" * 300, "a" * 5000, "%s", "{}", "[first]", "ai.onnx", "com.microsoft", "-1", "9" * 5000,
)  # fmt: skip
DEPTH = 12
"""How deep messages are searched; a mutation may nest them without end."""


def messages(root: Message, depth: int = DEPTH) -> Iterator[Message]:
    """A message and all that it holds."""
    yield root
    for field, value in root.ListFields() if depth else ():
        if field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                yield from messages(inner, depth - 1)


def edge_value(field: FieldDescriptor, rng: Random) -> Any:
    """An odd value of a field that holds no message; it may be out of the field's range."""
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            text = rng.choice(ODD_TEXTS)
            return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
        case FieldDescriptor.CPPTYPE_FLOAT | FieldDescriptor.CPPTYPE_DOUBLE:
            return rng.choice(EDGE_FLOATS)
        case FieldDescriptor.CPPTYPE_ENUM:
            known = field.enum_type.values_by_number if field.enum_type else ()
            return rng.choice([*known, 99])
        case FieldDescriptor.CPPTYPE_BOOL:
            return rng.choice((True, False))
        case _:
            return rng.choice(EDGE_INTEGERS)


def set_field(message: Message, rng: Random) -> None:
    """Give any field, set or not, an odd value, or an empty message."""
    fields: list[Any] = list(message.DESCRIPTOR.fields)
    field = rng.choice(fields)
    value = getattr(message, field.name)
    try:
        if field.message_type is not None:
            value.add() if field.is_repeated else value.SetInParent()
        elif not field.is_repeated:
            setattr(message, field.name, edge_value(field, rng))
        elif len(value) and rng.random() < 0.7:
            value[rng.randrange(len(value))] = edge_value(field, rng)
        else:
            value.append(edge_value(field, rng))
    except (ValueError, TypeError, OverflowError):
        message.ClearField(field.name)


def delete_field(message: Message, rng: Random) -> None:
    """Drop one field, or one element of a repeated one."""
    fields = [field for field, _ in message.ListFields()]
    if not fields:
        return
    field = rng.choice(fields)
    if field.is_repeated and rng.random() < 0.7:
        values = getattr(message, field.name)
        del values[rng.randrange(len(values))]
    else:
        message.ClearField(field.name)


def repeated(message: Message, rng: Random) -> Any:
    """The values of one repeated field that has some, or None."""
    found = [value for field, value in message.ListFields() if field.is_repeated and len(value)]
    return rng.choice(found) if found else None


def duplicate_element(message: Message, rng: Random) -> None:
    """Append an element of a repeated field once more."""
    values = repeated(message, rng)
    if values is not None:
        values.extend([values[rng.randrange(len(values))]])


def reorder(message: Message, rng: Random) -> None:
    """Shuffle a repeated field."""
    values = repeated(message, rng)
    if values is not None:
        order = list(values)
        if isinstance(order[0], Message):
            copies = [type(element).FromString(element.SerializeToString()) for element in order]
            order = copies
        rng.shuffle(order)
        del values[:]
        values.extend(order)


FIELD_MUTATIONS: tuple[Callable[[Message, Random], None], ...] = (
    set_field, set_field, set_field, delete_field, delete_field, duplicate_element, reorder,
)  # fmt: skip


def mutate_any_field(root: Message, rng: Random) -> None:
    """Change one field of one message somewhere below."""
    rng.choice(FIELD_MUTATIONS)(rng.choice(list(messages(root))), rng)


def transplant(root: Message, rng: Random) -> None:
    """Put a copy of one message in the place of another one of its type, perhaps its parent."""
    found = list(messages(root))
    target = rng.choice(found)
    same = [m for m in found if m.DESCRIPTOR is target.DESCRIPTOR and m is not target]
    if same:
        raw = rng.choice(same).SerializeToString()
        target.Clear()
        target.MergeFromString(raw)
