"""Two graphs side by side: each value of the original paired with what it became in the result.

    (a, b)  ←  two chains from a pair (base, base′)  |  the same operator on pairs (a_i, b_i)
            |  a and b bounded separately, and subtracted

Pairs are made on demand, from the outputs back to the inputs, so a value that exists in one graph
only is never asked for: it lies inside a chain. Where there is no bound, `Uncertified` names the
node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from onnxfde.errors import ModelError, in_one_line
from onnxfde.graph.model import Graph
from onnxfde.graph.nodes import label, op
from onnxfde.graph.protos import NodeProto
from onnxfde.neurons.intervals import Box, Pair, Uncertified
from onnxfde.proof.batch_axis import Batch, batch_of, check_chain
from onnxfde.proof.chain_pairs import Side, chain_pair, read_both_chains, read_both_curved_chains
from onnxfde.proof.chains import Chain
from onnxfde.proof.input_box import input_interval
from onnxfde.proof.node_call import NodeCall, Value, as_value
from onnxfde.proof.operator_table import apply_operator
from onnxfde.proof.read_chain import skip_idle_nodes

NamePair = tuple[str, str]
"""The names of a value in the original and in the result."""
OLDEST_OPSET = 7
"""The first opset with the broadcasting of today (ONNX operator changelog: Add, Mul, Gemm)."""
RULE_ERRORS = (
    ArithmeticError, AssertionError, LookupError, MemoryError, ModelError, TypeError, ValueError,
    np.linalg.LinAlgError,
)  # fmt: skip
"""What a rule may raise if a node does not fit the values it reads."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Which pairs another pair is made of, and how."""

    needs: tuple[NamePair | None, ...]
    make: Callable[[tuple[Value | None, ...]], Value]
    node: NodeProto | None = None
    constant: bool = False


@dataclass(eq=False)
class Pairing:
    """Pairs of two graphs over a box of inputs, each computed once."""

    original: Graph
    result: Graph
    box: Box
    done: dict[NamePair, Value] = field(default_factory=dict)
    batches: dict[NamePair, Batch] = field(default_factory=dict)
    """Which values hold the samples of a batch."""
    single: dict[int, Pairing] = field(default_factory=dict)
    """Each graph paired with itself, by its id."""

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

    def resolve(self, goal: NamePair) -> Value:
        """A pair, after all the pairs it is made of."""
        goal = self.key(*goal)
        stack, plans = [goal], dict[NamePair, Plan]()
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

    def key(self, a: str, b: str) -> NamePair:
        """Two values, traced back through nodes that do nothing."""
        try:
            return skip_idle_nodes(self.original, a), skip_idle_nodes(self.result, b)
        except RULE_ERRORS as error:
            raise about_node(self.original.producers.get(a), error) from None

    def planned(self, key: NamePair) -> Plan:
        """How to make a pair; `Uncertified` if the nodes that compute it are malformed."""
        try:
            return self.plan(key)
        except RULE_ERRORS as error:
            raise about_node(self.original.producers.get(key[0]), error) from None

    def plan(self, key: NamePair) -> Plan:
        """How to make a pair."""
        a, b = key
        known = self.constants(key)
        if known is not None:
            return Plan((), lambda _: constant_pair(key[0], *known), constant=True)
        given = {v.name for v in self.original.inputs} & {v.name for v in self.result.inputs}
        if a == b and a in given:
            return Plan((), lambda _: self.input_pair(key))
        old, new = (graph.producers.get(name) for graph, name in self.sides(key))
        sides = self.sides(key)
        chains = read_both_curved_chains(*sides) or read_both_chains(*sides)
        if chains is not None:
            base = self.key(chains[0].base, chains[1].base)
            return Plan((base,), lambda x: self.by_chain(key, base, chains, x[0]), old)
        if old is None or new is None or not same_operation(old, new, key):
            return Plan((), lambda _: self.apart(key), old)
        inputs = list(zip(old.input, new.input, strict=True))
        if not all(constants_fit(self.constants(names)) for names in inputs):
            return Plan((), lambda _: self.apart(key), old)
        needs = tuple(self.key(*names) if all(names) else None for names in inputs)
        return Plan(needs, lambda read: self.by_rule(key, needs, read), old)

    def constants(self, key: NamePair) -> tuple[Value, Value] | None:
        """Two values, if both are constants."""
        old, new = self.original.constant(key[0]), self.result.constant(key[1])
        return (as_value(old.values), as_value(new.values)) if old and new else None

    def sides(self, key: NamePair) -> tuple[Side, Side]:
        """Each graph with its value."""
        return (self.original, key[0]), (self.result, key[1])

    def made(self, key: NamePair, plan: Plan) -> Value:
        """A pair from the pairs it is made of; if that fails, from each value separately."""
        try:
            found = plan.make(tuple(self.done[k] if k else None for k in plan.needs))
            return found if plan.constant else sound_bounds(found)
        except Uncertified as reason:
            if self.original is not self.result and plan.node is not None and plan.needs:
                return sound_bounds(self.apart(key))
            raise about_node(plan.node, reason) from None
        except RULE_ERRORS as error:
            raise about_node(plan.node, error) from None

    def input_pair(self, key: NamePair) -> Pair:
        """An input, which is the same in both graphs."""
        found, self.batches[key] = input_interval(self.original, key[0], self.box)
        return Pair.same(found)

    def by_chain(
        self, key: NamePair, base: NamePair, chains: tuple[Chain, Chain], x: Value | None
    ) -> Value:
        """A pair from the two chains that make its values."""
        if not isinstance(x, Pair):
            raise Uncertified(f"'{base[0]}' is not floating-point")
        if self.batches.get(base):
            check_chain(x, chains[0].layout == "columns")
            self.batches[key] = True
        return chain_pair(*chains, x)

    def by_rule(
        self, key: NamePair, needs: tuple[NamePair | None, ...], read: tuple[Value | None, ...]
    ) -> Value:
        """A pair by the rule of the operator that makes both of its values."""
        node = self.original.producers[key[0]]
        position = list(node.output).index(key[0])
        call = NodeCall(node, read, self.original.opset, position)
        found = apply_operator(call, op(node))
        batches = [self.batches.get(need, False) if need else False for need in needs]
        self.batches[key] = batch_of(call, op(node), found, batches)
        return found

    def apart(self, key: NamePair) -> Pair:
        """A pair of two values that are bounded separately and then subtracted."""
        if self.original is self.result:
            raise Uncertified(f"'{key[0]}' is neither a constant nor computed")
        values = []
        for graph, name in self.sides(key):
            alone = self.single.setdefault(id(graph), Pairing(graph, graph, self.box))
            found = alone.resolve((name, name))
            if not isinstance(found, Pair):
                raise Uncertified(f"'{name}' differs and is not floating-point")
            values.append(found)
            if alone.batches.get(alone.key(name, name)):
                self.batches[key] = True
        old, new = values
        if old.shape != new.shape:
            raise Uncertified(f"'{key[0]}' has a different shape in the result")
        return Pair(old.value, new.value - old.value, old.size)


def same_operation(old: NodeProto, new: NodeProto, key: NamePair) -> bool:
    """Whether two nodes do the same with the values they read."""
    options = [sorted(a.SerializeToString() for a in node.attribute) for node in (old, new)]
    places = [list(node.output).index(name) for node, name in zip((old, new), key, strict=True)]
    given = [[bool(name) for name in node.input] for node in (old, new)]
    counts = [len(node.output) for node in (old, new)]
    first, second = zip(options, places, given, counts, strict=True)
    return op(old) == op(new) and first == second


def constants_fit(known: tuple[Value, Value] | None) -> bool:
    """Whether two constants can be compared: equal, or floating-point numbers of one shape."""
    if known is None:
        return True
    old, new = known
    if isinstance(old, Pair) and isinstance(new, Pair):
        return old.shape == new.shape
    return not isinstance(old, Pair) and not isinstance(new, Pair) and np.array_equal(old, new)


def constant_pair(name: str, old: Value, new: Value) -> Value:
    """Two constants that can be compared; infinite ones only if they are equal."""
    if not constants_fit((old, new)):
        raise Uncertified("a constant has a different shape or type in the result")
    if not isinstance(old, Pair) or not isinstance(new, Pair):
        return old
    if np.isnan(old.size).any() or np.isnan(new.size).any():
        raise Uncertified(f"the constant '{name}' holds NaN")
    if np.array_equal(old.value.low, new.value.low):
        return old
    if np.isinf(old.size).any() or np.isinf(new.size).any():
        raise Uncertified(f"the constant '{name}' is infinite")
    return Pair(old.value, new.value - old.value, old.size)


def about_node(node: NodeProto | None, reason: Exception) -> Uncertified:
    """A reason together with the node it is about."""
    if isinstance(reason, Uncertified) and (reason.where or node is None):
        return reason
    return Uncertified(in_one_line(reason), f"node {label(node)} ({op(node)})" if node else "")


def sound_bounds(value: Value) -> Value:
    """The value, if its bounds are finite and no lower bound is above the upper one."""
    for interval in (value.value, value.change) if isinstance(value, Pair) else ():
        if not (np.isfinite(interval.low).all() and np.isfinite(interval.high).all()):
            raise Uncertified("its bounds overflow")
        if np.any(interval.low > interval.high):
            raise Uncertified("its bounds contradict each other (please report this model)")
    return value
