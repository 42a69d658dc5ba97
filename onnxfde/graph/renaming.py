"""Short names in place of a graph's own, while a tool derives new names from them.

`x` and `x_scale` become v0 and v1, so that the name `v0_scale` is free for the tool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from onnxfde.graph.nodes import bodies
from onnxfde.graph.protos import GraphProto

ALIAS = re.compile(r"[vn]\d+")


def hide(graph: GraphProto) -> dict[str, str]:
    """Give every value and node an alias; return the name of each (also for unnamed nodes)."""
    values: dict[str, str] = {}
    nodes: dict[str, None] = {}

    def value(name: str) -> str:
        return values.setdefault(name, f"v{len(values)}")

    def node(name: str) -> str:
        nodes[free(name or "node", nodes)] = None
        return f"n{len(nodes) - 1}"

    rename(graph, value, node)
    return {alias: name for name, alias in values.items()} | {
        f"n{number}": name for number, name in enumerate(nodes)
    }


def show(graph: GraphProto, names: dict[str, str]) -> None:
    """Undo `hide`; in a name that was derived from an alias, the alias is replaced too."""
    rename(graph, shown(names, "v"), shown(names, "n"))


def shown(names: dict[str, str], letter: str) -> Callable[[str], str]:
    """A function from aliases, and names derived from them, to unique names."""
    known = {alias: name for alias, name in names.items() if alias.startswith(letter)}
    taken = dict.fromkeys(known.values())

    def name(alias: str) -> str:
        if alias not in known:
            base = ALIAS.match(alias)
            wish = alias if base is None else names.get(base[0], base[0]) + alias[base.end() :]
            known[alias] = free(wish, taken)
            taken[known[alias]] = None
        return known[alias]

    return name


def free(wish: str, taken: dict[str, None]) -> str:
    """A name that is not taken."""
    names = (wish if i == 0 else f"{wish}_{i}" for i in range(len(taken) + 1))
    return next(name for name in names if name not in taken)


def rename(graph: GraphProto, value: Callable[[str], str], node: Callable[[str], str]) -> None:
    """Rename all values and nodes, in bodies too; an empty name of a value stays empty."""
    for part in parts(graph):
        for found in part.node:
            found.name = node(found.name)
            for names in (found.input, found.output):
                names[:] = [name and value(name) for name in names]
        for item in (*part.input, *part.output, *part.value_info):
            item.name = value(item.name)
        sparse = (tensor.values for tensor in part.sparse_initializer)
        for tensor in (*part.initializer, *sparse):
            tensor.name = value(tensor.name)


def parts(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and all bodies in it."""
    yield graph
    for node in graph.node:
        for body in bodies(node):
            yield from parts(body)
