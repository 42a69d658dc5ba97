"""Two graphs side by side: each value of the original with the value of the result it became.

    (a, b) ← chain of both from (base, base′) | the same operator on (a_i, b_i) | each by itself

Pairs are asked for from the outputs back, so a value that only one side has is met only inside a
chain. What cannot be bounded raises `Uncertified`, which names the node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from onnxfde.errors import DataError
from onnxfde.graph.input_specs import input_specs
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import label, op
from onnxfde.graph.protos import NodeProto
from onnxfde.graph.tensors import FLOATS
from onnxfde.neurons.intervals import Interval, Pair, Uncertified
from onnxfde.numbers import FloatArray
from onnxfde.proof.affine_bounds import Map
from onnxfde.proof.batch_axis import Batch, batch_of, check_chain
from onnxfde.proof.chain_bounds import chain_change
from onnxfde.proof.read_chain import Path, read_path, through
from onnxfde.proof.rules import Site, Value, apply, as_value

Limits = tuple[FloatArray | float, FloatArray | float]
Box = Mapping[str, Limits]
Key = tuple[str, str]
OLDEST_OPSET = 7
RULE_ERRORS = (
    ArithmeticError, AssertionError, LookupError, TypeError, ValueError, np.linalg.LinAlgError,
)  # fmt: skip
"""What a rule may raise where a node does not fit what it reads."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Which pairs a pair is made of, and how."""

    needs: tuple[Key | None, ...]
    make: Callable[[tuple[Value | None, ...]], Value]
    node: NodeProto | None = None
    constant: bool = False


@dataclass(eq=False)
class Pairing:
    """Pairs of two graphs over a box of inputs, each computed once."""

    original: Graph
    result: Graph
    box: Box
    done: dict[Key, Value] = field(default_factory=dict)
    batches: dict[Key, Batch] = field(default_factory=dict)
    """Which values hold all samples of a dynamic leading axis."""
    single: dict[int, Pairing] = field(default_factory=dict)
    """Each graph paired with itself."""

    def output(self, name: str) -> Pair:
        """The pair of a floating-point output."""
        if self.original.opset < OLDEST_OPSET:
            raise Uncertified(f"opset {self.original.opset} broadcasts by other rules")
        if self.original.opset != self.result.opset:
            raise Uncertified("the two models have different opsets")
        found = self.resolve((name, name))
        if not isinstance(found, Pair):
            raise Uncertified(f"output '{name}' is not floating-point")
        return found

    def resolve(self, goal: Key) -> Value:
        """A pair, after all the pairs it is made of."""
        goal = self.key(*goal)
        stack, plans = [goal], dict[Key, Plan]()
        while stack:
            top = stack[-1]
            if top in self.done:
                stack.pop()
                continue
            plan = plans[top] = plans.get(top) or self.planned(top)
            missing = [key for key in plan.needs if key and key not in self.done]
            stack.extend(missing)
            if not missing:
                self.done[top] = self.made(top, plans.pop(top))
        return self.done[goal]

    def key(self, a: str, b: str) -> Key:
        """Two values, without the nodes before them that do nothing."""
        try:
            return through(self.original, a), through(self.result, b)
        except RULE_ERRORS as error:
            raise named(self.original.producers.get(a), error) from None

    def planned(self, key: Key) -> Plan:
        """How a pair can be had, if nothing is wrong with the nodes that make it."""
        try:
            return self.plan(key)
        except RULE_ERRORS as error:
            raise named(self.original.producers.get(key[0]), error) from None

    def plan(self, key: Key) -> Plan:
        """How a pair can be had."""
        a, b = key
        known = self.constants(key)
        if known is not None:
            return Plan((), lambda _: constant_pair(key[0], *known), constant=True)
        given = {v.name for v in self.original.inputs} & {v.name for v in self.result.inputs}
        if a == b and a in given:
            return Plan((), lambda _: Pair.same(self.input_box(key)))
        old, new = (graph.producers.get(name) for graph, name in self.sides(key))
        paths = self.paths(key)
        if paths is not None:
            base = self.key(paths[0].base, paths[1].base)
            return Plan((base,), lambda x: self.by_chain(key, base, paths, x[0]), old)
        if old is None or new is None or not alike(old, new, key):
            return Plan((), lambda _: self.apart(key), old)
        inputs = list(zip(old.input, new.input, strict=True))
        if not all(constants_fit(self.constants(names)) for names in inputs):
            return Plan((), lambda _: self.apart(key), old)
        needs = tuple(self.key(*names) if all(names) else None for names in inputs)
        return Plan(needs, lambda read: self.by_rule(key, needs, read), old)

    def constants(self, key: Key) -> tuple[Value, Value] | None:
        """Two values, if both are constants."""
        old, new = self.original.constant(key[0]), self.result.constant(key[1])
        return (as_value(old.values), as_value(new.values)) if old and new else None

    def sides(self, key: Key) -> tuple[tuple[Graph, str], tuple[Graph, str]]:
        """Each graph with its value."""
        return (self.original, key[0]), (self.result, key[1])

    def made(self, key: Key, plan: Plan) -> Value:
        """A pair from the pairs it is made of; where that fails, from each side by itself."""
        try:
            found = plan.make(tuple(self.done[k] if k else None for k in plan.needs))
            return found if plan.constant else finite(found)
        except Uncertified as reason:
            if self.original is not self.result and plan.node is not None and plan.needs:
                return finite(self.apart(key))
            raise named(plan.node, reason) from None
        except RULE_ERRORS as error:
            raise named(plan.node, error) from None

    def by_chain(self, key: Key, base: Key, paths: tuple[Path, Path], x: Value | None) -> Value:
        """The two chains that make both values."""
        if not isinstance(x, Pair):
            raise Uncertified(f"'{base[0]}' is not floating-point")
        if self.batches.get(base):
            check_chain(x, paths[0].layout == "columns")
            self.batches[key] = True
        return along(*paths, x)

    def by_rule(
        self, key: Key, needs: tuple[Key | None, ...], read: tuple[Value | None, ...]
    ) -> Value:
        """The rule of the operator that makes both values."""
        node = self.original.producers[key[0]]
        position = list(node.output).index(key[0])
        site = Site(node, read, self.original.opset, position)
        found = apply(site, op(node))
        batches = [self.batches.get(need, False) if need else False for need in needs]
        self.batches[key] = batch_of(site, op(node), found, batches)
        return found

    def apart(self, key: Key) -> Pair:
        """Each value by itself, and their difference."""
        if self.original is self.result:
            raise Uncertified(f"'{key[0]}' is neither a constant nor computed")
        values = []
        for graph, name in self.sides(key):
            own = self.single.setdefault(id(graph), Pairing(graph, graph, self.box))
            found = own.resolve((name, name))
            if not isinstance(found, Pair):
                raise Uncertified(f"'{name}' differs and is not floating-point")
            values.append(found)
            if own.batches.get(own.key(name, name)):
                self.batches[key] = True
        old, new = values
        if old.shape != new.shape:
            raise Uncertified(f"'{key[0]}' has another shape in the result")
        return Pair(old.value, new.value - old.value, old.size)

    def input_box(self, key: Key) -> Interval:
        """The box of an input, for one sample."""
        name = key[0]
        try:
            spec = next(s for s in input_specs(self.original) if s.name == name)
        except DataError as reason:
            raise Uncertified(str(reason)) from None
        kind = next(v.type.tensor_type for v in self.original.inputs if v.name == name)
        if kind.elem_type not in FLOATS:
            raise Uncertified(f"input '{name}' is {spec.dtype.name}")
        if not spec.dims:
            raise Uncertified(f"input '{name}' has no shape")
        if any(not isinstance(d, int) for d in spec.dims[1:]):
            raise Uncertified(f"input '{name}' has axes of unknown length")
        if name not in self.box:
            raise Uncertified(f"input '{name}' has no range")
        self.batches[key] = not isinstance(spec.dims[0], int)
        shape = tuple(d if isinstance(d, int) else 1 for d in spec.dims)
        return box_of(name, self.box[name], shape)

    def paths(self, key: Key) -> tuple[Path, Path] | None:
        """Both values as chains of the same length, from the last value that both chains have."""
        paths = [read_path(graph, name) for graph, name in self.sides(key)]
        if paths[0] is None or paths[1] is None or not comparable(paths[0], paths[1]):
            return None
        joint = last_joint(paths[0], paths[1])
        if joint is None:
            return paths[0], paths[1]
        old, new = (read_path(graph, name, joint) for graph, name in self.sides(key))
        assert old is not None
        assert new is not None
        return old, new


def alike(old: NodeProto, new: NodeProto, key: Key) -> bool:
    """Whether two nodes do the same with what they read."""
    options = [sorted(a.SerializeToString() for a in node.attribute) for node in (old, new)]
    places = [list(node.output).index(name) for node, name in zip((old, new), key, strict=True)]
    given = [[bool(name) for name in node.input] for node in (old, new)]
    counts = [len(node.output) for node in (old, new)]
    sides = zip(options, places, given, counts, strict=True)
    first, second = sides
    return op(old) == op(new) and first == second


def comparable(old: Path, new: Path) -> bool:
    """Whether two chains have as many squares, and read and make values of the same kind."""
    return (len(old.maps), old.layout, old.flattened, *ends(old)) == (
        len(new.maps),
        new.layout,
        new.flattened,
        *ends(new),
    )


def ends(path: Path) -> tuple[int, int]:
    """How many features a chain reads and makes."""
    return path.maps[0].weight.shape[1], len(path.maps[-1].weight)


def last_joint(old: Path, new: Path) -> str | None:
    """The last value between two affine maps that both chains have."""
    common = [name for _, name, _ in old.joints if joint_of(old, name) == joint_of(new, name)]
    return common[-1] if common else None


def joint_of(path: Path, name: str) -> tuple[int, int] | None:
    """Where a chain has a value between two affine maps, and how many features that has."""
    found = ((place, width) for place, other, width in path.joints if other == name)
    return next(found, None)


def constants_fit(known: tuple[Value, Value] | None) -> bool:
    """Whether two constants can be compared: equal, or floating-point numbers of one shape."""
    if known is None:
        return True
    old, new = known
    if isinstance(old, Pair) and isinstance(new, Pair):
        return old.shape == new.shape
    return not isinstance(old, Pair) and not isinstance(new, Pair) and np.array_equal(old, new)


def constant_pair(name: str, old: Value, new: Value) -> Value:
    """Two constants that can be compared; infinite ones only if nothing changed."""
    if not constants_fit((old, new)):
        raise Uncertified("a constant of the result has another shape or type")
    if not isinstance(old, Pair) or not isinstance(new, Pair):
        return old
    if np.isnan(old.size).any() or np.isnan(new.size).any():
        raise Uncertified(f"the constant '{name}' holds NaN")
    if np.array_equal(old.value.low, new.value.low):
        return old
    if np.isinf(old.size).any() or np.isinf(new.size).any():
        raise Uncertified(f"the constant '{name}' is infinite")
    return Pair(old.value, new.value - old.value, old.size)


def box_of(name: str, limits: Limits, shape: tuple[int, ...]) -> Interval:
    """The box of an input of this shape."""
    ends = [np.asarray(end, dtype=np.float64) for end in limits]
    try:
        low, high = (np.ascontiguousarray(np.broadcast_to(end, shape)) for end in ends)
    except ValueError:
        raise Uncertified(f"the range of input '{name}' has another shape") from None
    if not (np.isfinite(low).all() and np.isfinite(high).all() and np.all(low <= high)):
        raise Uncertified(f"input '{name}' has no range of finite numbers")
    return Interval(low.reshape(shape), high.reshape(shape))


def named(node: NodeProto | None, reason: Exception) -> Uncertified:
    """A reason with the node it is about."""
    if isinstance(reason, Uncertified) and (reason.where or node is None):
        return reason
    text = (str(reason).strip().splitlines() or [type(reason).__name__])[0]
    return Uncertified(text, f"node {label(node)} ({op(node)})" if node else "")


def finite(value: Value) -> Value:
    """The value, if its bounds are numbers, the lower one below the upper one."""
    for interval in (value.value, value.change) if isinstance(value, Pair) else ():
        if not (np.isfinite(interval.low).all() and np.isfinite(interval.high).all()):
            raise Uncertified("its bounds overflow")
        if np.any(interval.low > interval.high):
            raise Uncertified("its bounds contradict each other (please report this model)")
    return value


def along(old: Path, new: Path, base: Pair) -> Pair:
    """Two chains from one pair."""
    rows = Rows.of(base, old)
    same = tuple(a == b for a, b in zip(old.keys, new.keys, strict=True))
    x = base.mapped(rows.folded)
    value, change = chain_change(old.maps, new.maps, same, x.value, x.change)
    return Pair(value, change, size_along(old.maps, x.size)).mapped(rows.unfolded)


def size_along(maps: tuple[Map, ...], size: FloatArray) -> FloatArray:
    """A behind a chain."""
    for i, f in enumerate(maps):
        size = f.magnitude(size if i == 0 else size**2)
    return size


@dataclass(frozen=True)
class Rows:
    """How the values of a chain become rows of features, and rows become values again."""

    lead: tuple[int, ...]
    width: int
    columns: bool
    flattened: bool

    @classmethod
    def of(cls, base: Pair, path: Path) -> Rows:
        """For what a chain reads."""
        columns = path.layout == "columns" and len(base.shape) > 1
        shape = (*base.shape[:-2], base.shape[-1]) if columns else base.shape[:-1]
        return cls(shape, path.maps[0].weight.shape[1], columns, path.flattened)

    def folded(self, a: FloatArray) -> FloatArray:
        """A value as rows."""
        a = np.moveaxis(a, -2, -1) if self.columns else a
        rows = np.broadcast_to(a, (*a.shape[:-1], self.width))
        return rows.reshape(math.prod(rows.shape[:-1]), self.width)

    def unfolded(self, a: FloatArray) -> FloatArray:
        """Rows as a value."""
        if self.flattened:
            return a
        a = a.reshape(*self.lead, a.shape[-1])
        return np.moveaxis(a, -1, -2) if self.columns else a
