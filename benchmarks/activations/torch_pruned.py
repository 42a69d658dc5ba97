"""The methods that work on the torch network: the numpy baselines, and Torch-Pruning.

Each takes the network, the pairs of linear maps, the share of neurons to keep and some inputs,
and makes the network smaller in place, pair by pair from the first to the last.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.activations.baselines import Pair, interpolated, strongest
from onnxfde.numbers import Array

Pairs = tuple[tuple[str, str], ...]
BATCH = 500
"""Rows of one forward run; chosen."""


def left(neurons: int, size: str) -> int:
    """How many neurons a layer keeps: of a share such as "30%" at most that, or a count."""
    return int(size[:-1]) * neurons // 100 if size.endswith("%") else min(int(size), neurons)


def magnitude_pruned(net: Any, pairs: Pairs, size: str, x: Array) -> None:
    """Keep the strongest neurons."""
    del x
    replace_pairs(net, pairs, size, lambda pair, neurons, _: strongest(pair, neurons))


def interpolative(net: Any, pairs: Pairs, size: str, x: Array) -> None:
    """Interpolative decomposition of what the network, smaller so far, computes on some inputs."""

    def smaller(pair: Pair, neurons: int, last: Any) -> Pair:
        return interpolated(pair, neurons, inputs_of(net, last, x))

    replace_pairs(net, pairs, size, smaller)


def replace_pairs(
    net: Any, pairs: Pairs, size: str, smaller: Callable[[Pair, int, Any], Pair]
) -> None:
    """Put smaller maps in place of each pair."""
    for names in pairs:
        first, last = (net.get_submodule(name) for name in names)
        pair = Pair(*(p.detach().double().numpy() for m in (first, last) for p in m.parameters()))
        found = smaller(pair, left(len(pair.bias), size), last)
        first.out_features = last.in_features = len(found.bias)
        put(first, found.incoming, found.bias)
        put(last, found.outgoing, found.offset)


def put(linear: Any, weight: Array, bias: Array) -> None:
    """Give a linear map other weights."""
    import torch

    for name, values in (("weight", weight), ("bias", bias)):
        values = torch.from_numpy(np.ascontiguousarray(values, np.float32))
        setattr(linear, name, torch.nn.Parameter(values))


def inputs_of(net: Any, part: Any, x: Array) -> Array:
    """What flows into a part of the network, one row per vector."""
    seen: list[Array] = []

    def remember(_: Any, arguments: Any) -> None:
        seen.append(arguments[0].flatten(0, -2).numpy())

    hook = part.register_forward_pre_hook(remember)
    outputs_in_torch(net, x)
    hook.remove()
    return np.concatenate(seen)


def outputs_in_torch(net: Any, x: Array) -> Array:
    """What a network computes."""
    import torch

    with torch.no_grad():
        return np.concatenate([net(part).numpy() for part in torch.from_numpy(x).split(BATCH)])


def torch_pruning(net: Any, pairs: Pairs, size: str, x: Array) -> None:
    """Torch-Pruning's magnitude pruner, for the neurons between each pair of maps only."""
    import torch

    pruning = import_module("torch_pruning")
    first = {net.get_submodule(name): left(net.get_submodule(name).out_features, size)
             for name, _ in pairs}  # fmt: skip
    linear = [m for m in net.modules() if isinstance(m, torch.nn.Linear) and m not in first]
    pruning.pruner.MagnitudePruner(
        net,
        torch.from_numpy(x[:1]),
        importance=pruning.importance.MagnitudeImportance(p=2),
        pruning_ratio_dict={m: 1 - (n + 0.5) / m.out_features for m, n in first.items()},
        ignored_layers=linear,
        round_to=None,
    ).step()  # it rounds the number it keeps down, hence half a neuron more
