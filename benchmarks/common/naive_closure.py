"""The baseline for partitions: expand every squared neuron and compare every pair of them."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from onnxfde.neurons.layer import Layer


def naive_backward_closure(layer: Layer, eps: float) -> set[frozenset[int]]:
    """Blocks of neurons whose expanded squares are linked by L1 distances within ε."""
    j, k = np.triu_indices(layer.inputs + 1)
    factor = np.where(j == k, 1.0, 2.0)
    expanded = [row[j] * row[k] * factor for row in layer.incoming]
    home = {i: {i} for i in range(layer.neurons)}
    for a, b in combinations(range(layer.neurons), 2):
        if np.abs(expanded[a] - expanded[b]).sum() <= eps and home[a] is not home[b]:
            home[a] |= home[b]
            for member in home[b]:
                home[member] = home[a]
    return {frozenset(block) for block in home.values()}
