"""The dense networks of this benchmark."""

from __future__ import annotations

from benchmarks.common.dense_networks import ACTIVATIONS, DenseTask

SINGLE = (
    ("digits", 256, 60, 64, 1e-3),
    ("abalone", 120, 200, 128, 3e-3),
    ("mnist", 256, 8, 128, 1e-3),
    ("fashion", 256, 12, 128, 1e-3),
)
"""Data, width, epochs, batch and rate: those of `square_networks`; chosen for FashionMNIST."""
DENSE = {
    task.name: task
    for task in (
        *(
            DenseTask(f"lenet-{seed}", "fashion", (300, 100), "relu", 16, 128, 1e-3, seed)
            for seed in range(3)
        ),
        DenseTask("mnist-deep", "mnist", (256,) * 4, "relu", 16, 128, 1e-3),
        *(
            DenseTask(f"{data}-{activation}", data, (width,), activation, epochs, batch, rate)
            for data, width, epochs, batch, rate in SINGLE
            for activation in ACTIVATIONS
        ),
    )
}
"""Every dense network by name; epochs, batches and rates were chosen for LeNet and MNIST too."""
