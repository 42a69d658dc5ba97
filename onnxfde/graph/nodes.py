"""Single nodes: their operator, their name, their attributes, and the values they read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx

from onnxfde.errors import ModelError, in_one_line
from onnxfde.graph.protos import GraphProto, NodeProto


def attributes(node: NodeProto) -> dict[str, Any]:
    """A node's attributes as Python values; ModelError if one of them has none."""
    try:
        return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    except ValueError as error:
        raise ModelError(f"{op(node)} '{label(node)}': {in_one_line(error)}") from None


def refers_to_function(node: NodeProto) -> bool:
    """Whether an attribute of a node is given by the caller of the function that the node is in."""
    return any(a.ref_attr_name for a in node.attribute)


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs inside a node (If, Loop, Scan)."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def names_used(node: NodeProto) -> Iterator[str]:
    """The values that a node reads, also inside its bodies."""
    yield from node.input
    for body in bodies(node):
        for inner in body.node:
            yield from names_used(inner)
        yield from (output.name for output in body.output)


def op(node: NodeProto) -> str:
    """A node's operator, with its domain unless that is onnx's own."""
    return str(node.op_type) if is_standard(node) else f"{node.domain}.{node.op_type}"


def is_standard(node: NodeProto) -> bool:
    """Whether a node is one of onnx's own operators."""
    return node.domain in ("", "ai.onnx")


def label(node: NodeProto) -> str:
    """A node's name, else its output's."""
    return node.name or next(iter(node.output), "")


def unique_labels(labels: list[str]) -> list[str]:
    """Labels with a number added to those that came before."""
    unique: dict[str, None] = {}
    taken = set(labels)
    for wish in labels:
        numbered = (f"{wish}#{i}" for i in range(2, len(labels) + 2))
        free = (name for name in numbered if name not in taken and name not in unique)
        unique[wish if wish not in unique else next(free)] = None
    return list(unique)
