"""What the columns of the tables mean, as the help of the commands explains them."""

from __future__ import annotations

LAYER_MEANINGS = {
    "layer": "The name of its first node.",
    "shape": "inputs-neurons-outputs.",
    "neurons": "Before → after; of a convolution, its channels.",
    "no loss": "So many neurons are enough to compute the same up to rounding.",
    "parameters": "Before → after.",
    "left": "The share of parameters that remains.",
    "ε": "The change of the layer's output that was aimed at (see error).",
    "error": "The measured change of the layer's output, relative to how much that output varies "
    "(its standard deviation; of a channel's map, over samples and positions): 0.1 is a tenth.",
    "estimate": "The same change, computed for normally distributed inputs of the same mean and "
    "covariance; for channels, that of so few of them in the original network, on the data.",
    "at least": "No layer of so few neurons has a smaller estimate.",
}
"""The columns of `optimize`, in order."""
INSPECTION_MEANINGS = {
    "shape": "inputs-neurons-outputs.",
    "no loss": "So many neurons are enough to compute the same up to rounding.",
    "ε 0.1": "Neurons left if the layer's output may change by 0.1 times its standard deviation. "
    "They are found by a quick method; optimize usually leaves fewer. Channels need --data.",
    "at least": "The row below a layer: no method can leave fewer neurons, for normally "
    "distributed inputs of the same mean and covariance.",
}
"""The columns of `inspect` that need an explanation."""
BENCH_MEANINGS = {
    "speed-up": "How many times faster than the first model, with its 95 % confidence interval.",
    "p50, p90, min": "Median, 90th percentile and least of the times of a run.",
    "load": "Time to make a session.",
    "memory": "What loading and running the model added to a process.",
    "mult-adds": "Multiplications of one run.",
    "instructions": "Counted on arm64 instead of times: a cost, not a time.",
    "fewer": "How many times fewer instructions than the first model.",
    "without call": "The same without what calling any model costs, however small it is; shown "
    "for small models.",
    "SIMD": "Instructions that work on vectors.",
    "varies": "How far apart repeated counts are.",
    "differs": "Largest difference of an output from this machine's, relative to the largest "
    "output.",
    "tenseal": "p50 is the time from encrypted inputs to encrypted outputs. In batch mode each "
    "slot of a ciphertext holds a sample: a batch as large as the slots takes as long as one "
    "sample. load: keys.",
    "ezkl": "p50 is the time to prove one batch; load is the setup.",
    "error": "Of tenseal and ezkl, as differs.",
}
"""The columns of `bench` that need an explanation."""
