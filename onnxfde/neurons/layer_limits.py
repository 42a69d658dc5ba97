"""Which layers are too large to be compared neuron by neuron, or input by input.

Gram matrices take 8·n² bytes for n neurons, or 8·n·f where φ has fewer numbers f than that, and
covariances 8·d² for d inputs. In ordinary layers that is not much more than what the weights take;
a layer with 100,000 inputs and two neurons would take 75 GiB.
"""

from __future__ import annotations

from onnxfde.neurons.kernels import feature_count
from onnxfde.neurons.layer import Layer

MOST_PAIR_BYTES = 2**30
"""The size of such a matrix that every layer may need: that of 11,585 neurons. At most two of them
are in memory at a time. Chosen; not tuned."""
BYTES_PER_WEIGHT = 512
"""How many bytes of it larger layers may need per weight: one input or output for every 64 neurons
is enough, and one neuron for every 64 inputs. Chosen; not tuned."""


def size_fault(layer: Layer) -> str | None:
    """Why a layer is too large to be compared; None if it is not."""
    most = max(MOST_PAIR_BYTES, BYTES_PER_WEIGHT * (layer.incoming.size + layer.outgoing.size))
    features = min(layer.neurons, feature_count(layer.inputs + 1))
    for count, others, what in (
        (layer.neurons, features, "neurons"),
        (layer.inputs, layer.inputs, "inputs"),
    ):
        needed = 8 * count * others
        if needed > most:
            size = f"{needed / 2**30:.1f} GiB"
            return f"a matrix of all pairs of its {count:,} {what} would take {size}"
    return None
