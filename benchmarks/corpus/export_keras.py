"""Small Keras networks as tf2onnx writes them; a script that `exports` runs.

As in `export_torch`, every second neuron of a hidden layer is a copy of the one before it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import tensorflow as tf
import tf2onnx
from keras import layers

INPUTS, WIDTH, OUTPUTS = 6, 16, 3
OPSETS = (13, 18)

ACTIVATIONS: dict[str, Any] = {
    "square": tf.square,
    "x·x": lambda x: x * x,
    "x^2": lambda x: x**2,
    "pow": lambda x: tf.pow(x, 2.0),
    "x·x+x": lambda x: x * x + x,
    "polynomial": lambda x: 0.1 * x * x + 0.5 * x + 0.25,
    "relu": "relu",
    "relu6": "relu6",
    "leaky": "leaky_relu",
    "elu": "elu",
    "gelu": "gelu",
    "silu": "silu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "softplus": "softplus",
}


def dense(activation: Any, bias: bool = True) -> Any:
    """A hidden layer."""
    return layers.Dense(WIDTH, activation=activation, use_bias=bias)


def networks() -> dict[str, Any]:
    """All networks, built."""
    rows, image = keras.Input((INPUTS,), name="x"), keras.Input((8, 8, 1), name="x")
    series, last = keras.Input((5, INPUTS), name="x"), layers.Dense
    found = {
        f"dense {name}": (rows, last(OUTPUTS)(dense(a)(dense(a)(rows))))
        for name, a in ACTIVATIONS.items()
    }
    for name in ("square", "x·x+x", "relu"):
        a = ACTIVATIONS[name]
        found[f"no bias {name}"] = rows, last(OUTPUTS, use_bias=False)(dense(a, False)(rows))
        norm = layers.BatchNormalization()(dense(None)(rows))
        found[f"batchnorm {name}"] = rows, last(OUTPUTS)(layers.Activation(a)(norm))
        norm = layers.LayerNormalization()(dense(None)(rows))
        found[f"layernorm {name}"] = rows, last(OUTPUTS)(layers.Activation(a)(norm))
        found[f"dropout {name}"] = rows, last(OUTPUTS)(layers.Dropout(0.5)(dense(a)(rows)))
        found[f"softmax {name}"] = rows, last(OUTPUTS, activation="softmax")(dense(a)(rows))
        pooled = layers.AveragePooling2D(2)(layers.Conv2D(4, 3, activation=a)(image))
        found[f"conv {name}"] = image, last(OUTPUTS)(dense(a)(layers.Flatten()(pooled)))
        found[f"residual {name}"] = rows, layers.Add()([rows, last(INPUTS)(dense(a)(rows))])
        found[f"sequence {name}"] = series, last(OUTPUTS)(dense(a)(series))
    found["lstm"], found["gru"] = (series, layers.LSTM(4)(series)), (series, layers.GRU(4)(series))
    return {name: keras.Model(*ends) for name, ends in found.items()}


def plant(model: Any) -> None:
    """Make every second unit of the hidden layers a copy of the one before."""
    for layer in model.layers:
        if isinstance(layer, layers.Dense | layers.Conv2D) and layer.get_weights()[0].shape[-1] > 3:
            arrays = [np.array(a) for a in layer.get_weights()]
            for array in arrays:
                array[..., 1::2] = array[..., ::2]
            layer.set_weights(arrays)


def main(folder: Path) -> None:
    """Convert all of them, for both opsets, with a dynamic and a fixed batch."""
    for name, model in networks().items():
        plant(model)
        shape = model.inputs[0].shape[1:]
        for opset, batch in zip(OPSETS, (None, 4), strict=True):
            spec = tf.TensorSpec((batch, *shape), tf.float32, name="x")
            function = tf.function(lambda x, model=model: model(x), input_signature=[spec])
            path = folder / f"tf2onnx-{opset} {name}.onnx"
            try:
                tf2onnx.convert.from_function(
                    function, input_signature=[spec], opset=opset, output_path=str(path)
                )
            except (RuntimeError, ValueError, TypeError, AttributeError, KeyError) as error:
                path.unlink(missing_ok=True)
                print(f"{path.name}: {str(error).splitlines()[:1]}", file=sys.stderr)
    print(f"tf2onnx {tf2onnx.__version__}, keras {keras.__version__}, tensorflow {tf.__version__}")


if __name__ == "__main__":
    keras.utils.set_random_seed(0)
    main(Path(sys.argv[1]))
