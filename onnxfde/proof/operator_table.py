"""The table of operators a proof can follow: one entry per operator, with all that is known of it.

`operator_rules` says how an operator carries a value and its change. The other facts are about
batches (`batch_axis`): how the samples along a leading axis of unknown length pass through it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from onnxfde.neurons.intervals import Pair, Uncertified
from onnxfde.neurons.smooth_activations import SELU_ALPHA, SELU_GAMMA
from onnxfde.proof.activation_rules import (
    clip_rule,
    gelu_rule,
    layer_normalization_rule,
    limit_rule,
    named_rule,
    prelu_rule,
    softmax_axis,
    softmax_rule,
    swish_rule,
)
from onnxfde.proof.node_call import NodeCall, Value, as_value
from onnxfde.proof.operator_rules import (
    Rule,
    add_rule,
    average_change,
    average_pool_rule,
    batch_normalization_rule,
    cast_rule,
    concat_rule,
    conv_rule,
    divide_rule,
    dropout_rule,
    gemm_rule,
    identity_rule,
    matrix_product,
    max_pool_rule,
    maximum_change,
    move_rule,
    multiply_rule,
    pad_rule,
    power_rule,
    reduce_rule,
    resize_rule,
    shape_rule,
    spatial_axes,
    subtract_rule,
)
from onnxfde.proof.output_size import output_size, refuse_too_large, resized


@dataclass(frozen=True)
class Operator:
    """What a proof knows about one operator."""

    rule: Rule | None = None
    """How it carries a value and its change; None if it only works on known arrays."""
    on_known: Literal["computes", "moves", "fills"] | None = None
    """What it may do when all it reads are known arrays: compute with their elements, only move
    them, or fill an array of the shape they give; None if it has no use for them alone."""
    moves: bool = False
    """Whether it moves elements, or adds them up along axes, without regard to their values: then
    labelled elements show where those of each sample end up."""
    batch_inputs: Literal["first", "any"] = "first"
    """Which of its inputs may hold the samples of a batch, if it does not move elements."""
    mixes: Callable[[NodeCall, Sequence[object]], object] = lambda call, batches: False
    """Whether its attributes make it mix samples, although the leading axis stays in place."""
    reads_shape: bool = False
    """Whether its output is a shape, which depends on the number of samples."""
    fixes_count: bool = False
    """Whether it may demand one number of samples, which must then be the one that is followed."""
    all_outputs: bool = False
    """Whether the rule holds for every output, not just the first."""


def gemm_mixes(call: NodeCall, batches: Sequence[object]) -> object:
    """A Gemm mixes samples that it reads as columns of A or as B."""
    return batches[1] or (batches[0] and call.options.get("transA", 0))


def softmax_mixes(call: NodeCall, _: Sequence[object]) -> bool:
    """A softmax over the leading axis mixes samples."""
    return softmax_axis(call) == 0


def normalization_mixes(call: NodeCall, _: Sequence[object]) -> bool:
    """A normalization over the leading axis mixes samples."""
    return bool(call.options.get("axis", -1) % len(call.pair().shape) == 0)


MOVE = Operator(move_rule, moves=True)
MOVE_ANYTHING = Operator(move_rule, moves=True, on_known="moves")
"""A move that shapes and indices also go through."""
OPERATORS: dict[str, Operator] = {
    "Abs": Operator(named_rule("Abs")),
    "Add": Operator(add_rule, "computes", batch_inputs="any"),
    "AveragePool": Operator(average_pool_rule),
    "BatchNormalization": Operator(batch_normalization_rule),
    "Cast": Operator(cast_rule, "moves"),
    "Celu": Operator(named_rule("Celu", alpha=1.0)),
    "Clip": Operator(clip_rule),
    "Concat": Operator(concat_rule, "moves", moves=True),
    "ConstantOfShape": Operator(on_known="fills"),
    "Conv": Operator(conv_rule),
    "Div": Operator(divide_rule, "computes", batch_inputs="any"),
    "Dropout": Operator(dropout_rule),
    "Elu": Operator(named_rule("Elu", alpha=1.0)),
    "Erf": Operator(named_rule("Erf")),
    "Expand": MOVE,
    "Flatten": MOVE,
    "Gather": MOVE_ANYTHING,
    "Gelu": Operator(gelu_rule),
    "Gemm": Operator(gemm_rule, batch_inputs="any", mixes=gemm_mixes),
    "GlobalAveragePool": Operator(
        lambda call: average_change(
            call.pair(), lambda a: np.mean(a, axis=spatial_axes(a), keepdims=True)
        )
    ),
    "GlobalMaxPool": Operator(
        lambda call: maximum_change(
            call.pair(), lambda a: np.max(a, axis=spatial_axes(a), keepdims=True)
        )
    ),
    "HardSigmoid": Operator(named_rule("HardSigmoid", alpha=0.2, beta=0.5)),
    "HardSwish": Operator(named_rule("HardSwish")),
    "Identity": Operator(identity_rule, "moves"),
    "LayerNormalization": Operator(layer_normalization_rule, mixes=normalization_mixes),
    "LeakyRelu": Operator(named_rule("LeakyRelu", alpha=0.01)),
    "MatMul": Operator(lambda call: matrix_product(call.pair(0), call.pair(1)), batch_inputs="any"),
    "Max": Operator(limit_rule, batch_inputs="any"),
    "MaxPool": Operator(max_pool_rule),
    "Min": Operator(limit_rule, batch_inputs="any"),
    "Mish": Operator(named_rule("Mish")),
    "Mul": Operator(multiply_rule, "computes", batch_inputs="any"),
    "Neg": Operator(lambda call: -call.pair()),
    "Pad": Operator(pad_rule, moves=True),
    "PRelu": Operator(prelu_rule),
    "Pow": Operator(power_rule),
    "Range": Operator(on_known="computes"),
    "ReduceMean": Operator(reduce_rule, moves=True),
    "ReduceSum": Operator(reduce_rule, moves=True),
    "Relu": Operator(named_rule("Relu")),
    "Reshape": Operator(move_rule, "moves", moves=True, fixes_count=True),
    "Resize": Operator(resize_rule, mixes=lambda call, _: resized(call)[0] is not None),
    "Selu": Operator(named_rule("Selu", alpha=SELU_ALPHA, gamma=SELU_GAMMA)),
    "Shape": Operator(shape_rule, reads_shape=True),
    "Sigmoid": Operator(named_rule("Sigmoid")),
    "Sin": Operator(named_rule("Sin")),
    "Slice": MOVE_ANYTHING,
    "Softmax": Operator(softmax_rule, mixes=softmax_mixes),
    "Softplus": Operator(named_rule("Softplus")),
    "Softsign": Operator(named_rule("Softsign")),
    "Split": Operator(move_rule, moves=True, all_outputs=True),
    "Squeeze": MOVE_ANYTHING,
    "Sub": Operator(subtract_rule, "computes", batch_inputs="any"),
    "Sum": Operator(add_rule, batch_inputs="any"),
    "Swish": Operator(swish_rule),
    "Tanh": Operator(named_rule("Tanh")),
    "ThresholdedRelu": Operator(named_rule("ThresholdedRelu", alpha=1.0)),
    "Tile": MOVE,
    "Transpose": MOVE_ANYTHING,
    "Unsqueeze": MOVE_ANYTHING,
    "com.microsoft.BiasGelu": Operator(gelu_rule),
    "com.microsoft.FastGelu": Operator(gelu_rule),
    "com.microsoft.Gelu": Operator(gelu_rule),
    "com.microsoft.QuickGelu": Operator(swish_rule),
}
NO_OPERATOR = Operator()


def apply_operator(call: NodeCall, name: str) -> Value:
    """The output of a node, from what it reads."""
    operator = OPERATORS.get(name, NO_OPERATOR)
    if operator is not NO_OPERATOR:
        refuse_too_large(output_size(call, name))
    known = [a for a in call.inputs if not isinstance(a, Pair)]
    if operator.on_known and len(known) == len(call.inputs):
        return as_value(call.evaluated(known))
    if operator.rule is None:
        raise Uncertified("no rule for it")
    if call.output and not operator.all_outputs:
        raise Uncertified(f"no rule for its output {call.output + 1}")
    return operator.rule(call)
