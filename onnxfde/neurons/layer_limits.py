"""Which layers are too large to be compared neuron by neuron, or input by input.

Gram matrices take 8·n² bytes for n neurons, and covariances 8·d² for d inputs. In ordinary layers
that is not much more than what the weights take; a layer with 100,000 inputs and two neurons would
take 75 GiB.
"""

from __future__ import annotations

from onnxfde.neurons.layer import Layer

MOST_PAIR_BYTES = 2**29
"""The size of such a matrix that every layer may need: that of 8,192 neurons. Chosen: merging
12,000 neurons with 10 inputs took 14 GB and did not end; not tuned."""
BYTES_PER_WEIGHT = 512
"""How many bytes of it larger layers may need per weight: one input or output for every 64 neurons
is enough, and one neuron for every 64 inputs. Chosen; not tuned."""


def size_fault(layer: Layer) -> str | None:
    """Why a layer is too large to be compared; None if it is not."""
    most = max(MOST_PAIR_BYTES, BYTES_PER_WEIGHT * (layer.incoming.size + layer.outgoing.size))
    for count, what in ((layer.neurons, "neurons"), (layer.inputs, "inputs")):
        needed = 8 * count**2
        if needed > most:
            size = f"{needed / 2**30:.1f} GiB"
            return f"a matrix of all pairs of its {count:,} {what} would take {size}"
    return None
