"""Networks for the tests of bench."""

from __future__ import annotations

import onnx

from tests.models import mlp, twins


def unknown_operator_network() -> onnx.ModelProto:
    """Valid ONNX for which no runtime has a kernel."""
    network = mlp(*twins())
    network.graph.node[1].op_type = "Unheard"
    network.graph.node[1].domain = "nowhere"
    network.opset_import.append(onnx.helper.make_opsetid("nowhere", 1))
    return network
