"""Putting a smaller layer back in the place of the one that was matched.

    affine(U) → [folded] → activation → [folded] → affine(V, c) → [folded]
    affine(U′)           → activation            → affine(V′, c′)

The nodes of an activation stay; the slopes of PRelu become those of the new neurons, and a bias
that the activation adds is folded into U. A polynomial of degree 2 becomes one product, unless it
is kept.
Only the nodes and tensors of the layer change; names, order and everything else in the ModelProto
stay, and the index of the graph is kept up to date. alpha and beta of a Gemm become 1. An Add for a
bias is inserted only if the layer had none and needs one. A weight that something else reads stays
as it is, and the layer gets a new one.
"""

from __future__ import annotations

import numpy as np

from onnxfde.graph.activation_patterns import WITH_BIAS, added_bias
from onnxfde.graph.affine_maps import Affine, Layout
from onnxfde.graph.constant_edit import MERGED, ConstantEdit
from onnxfde.graph.match import Match, Spelling, activation_input
from onnxfde.graph.model import Graph
from onnxfde.graph.new_nodes import make_add, make_prelu, make_product
from onnxfde.graph.nodes import label, op
from onnxfde.graph.protos import NodeProto
from onnxfde.graph.regions import Parts
from onnxfde.graph.reshapes import feature_length
from onnxfde.graph.tensors import make_tensor
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.quadratics import Quadratic, spelled_layer
from onnxfde.numbers import FloatArray


def write_layer(graph: Graph, match: Match, layer: Layer, kept: Quadratic | None = None) -> None:
    """Replace a matched layer in the model that `graph` looks at.

    A layer of squares is written as such, or with the polynomial `kept`, the same one for all
    neurons: the nodes that compute it now if they can stay, else h·(h + 2β).
    """
    edit = Edit(graph, match.incoming.dtype)
    for node in (*match.incoming.folded, *match.outgoing.folded):
        edit.bypass(node)
    for node in match.behind:
        edit.take_back(node)
    if kept is not None:
        layer = spelled_layer(layer, kept)
    if match.spelling is not None and not (kept is not None and match.spelling.resizable):
        edit.write_polynomial(match.spelling, kept)
    edit.write_activation(match, layer)
    edit.write_affine(match.incoming, layer.incoming[:, :-1], layer.incoming[:, -1])
    edit.write_affine(match.outgoing, layer.outgoing, layer.offset)
    edit.write_reshapes(match.reshapes, layer.neurons)
    edit.resize(match.values, layer.neurons, match.incoming.layout)
    edit.drop_unused()


class Edit(ConstantEdit):
    """Changes to the layers of one model."""

    def bypass(self, node: NodeProto) -> None:
        """Take a node that reads one value and constants out of the chain."""
        at = 0 if not self.graph.is_constant(node.input[0]) else 1
        self.orphans.extend(name for i, name in enumerate(node.input) if name and i != at)
        self.rewire(node.output[0], node.input[at])
        self.forget_shape(node.output[0])
        self.graph.remove(node)

    def take_back(self, node: NodeProto) -> None:
        """Remove a node, the only reader of a value, and let that value have the result's name."""
        at = 0 if not self.graph.is_constant(node.input[0]) else 1
        value, result = node.input[at], node.output[0]
        self.orphans.extend(name for i, name in enumerate(node.input) if name and i != at)
        self.graph.remove(node)
        self.forget_shape(value)
        self.graph.rename_output(self.graph.producers[value], result)

    def write_polynomial(self, spelling: Spelling, kept: Quadratic | None) -> None:
        """Put one product in the place of a polynomial's nodes: h·h, or h·(h + 2β)."""
        graph, named = self.graph, label(spelling.nodes[-1])
        place, argument = self.take_out(spelling.nodes, spelling.value)
        other = argument
        if kept is not None:
            other = self.unused_name(f"{argument}_shifted")
            wish = f"{argument}_shift"
            tensor = make_tensor(self.unused_name(wish), kept.linear[0].astype(self.dtype))
            graph.add_tensor(tensor)
            graph.insert(make_add(f"{named}_shift", argument, tensor.name, other), place)
            place += 1
        graph.insert(make_product(named, argument, other, spelling.value), place)

    def take_out(self, nodes: tuple[NodeProto, ...], value: str) -> tuple[int, str]:
        """Remove the nodes that make a value; returns where they stood and what they read."""
        graph = self.graph
        # Other edits may have renamed the value that its nodes read.
        inner = {name for node in nodes for name in node.output}
        read = [n for n in nodes[0].input if n not in inner and not graph.is_constant(n)]
        place = graph.position(nodes[-1]) - len(nodes) + 1
        for node in nodes:
            self.orphans.extend(name for name in node.input if graph.is_constant(name))
            if node.output[0] != value:
                self.forget_shape(node.output[0])
            graph.remove(node)
        return place, read[0]

    def write_slopes(self, parts: Parts, slopes: FloatArray, layout: Layout) -> None:
        """Put one PRelu in the place of the nodes that compute it."""
        name, rank = label(parts.core[-1]), self.graph.rank(parts.argument)
        place, argument = self.take_out(parts.core, parts.value)
        addend = as_addend(slopes, layout, rank).astype(self.dtype)
        tensor = make_tensor(self.unused_name(f"{parts.value}_slopes"), addend)
        self.graph.add_tensor(tensor)
        self.graph.insert(make_prelu(name, argument, tensor.name, parts.value), place)

    def write_activation(self, match: Match, layer: Layer) -> None:
        """Store the parameters of neurons, and drop the bias that an activation adds."""
        node = match.activation
        if match.replaced is not None:
            (slopes,) = layer.unit_parameters
            self.write_slopes(match.replaced, slopes, match.incoming.layout)
            return
        if added_bias(node):
            self.orphans.append(self.graph.drop_last_input(node))
            node.op_type = WITH_BIAS[op(node)]
        for place, values in enumerate(layer.unit_parameters, start=1):
            self.as_initializer = self.is_stored(node.input[place])
            columns = match.incoming.layout == "columns"
            rank = self.graph.rank(node.input[0]) if columns else None
            self.store(node, place, as_addend(values, match.incoming.layout, rank))

    def write_reshapes(self, nodes: tuple[NodeProto, ...], neurons: int) -> None:
        """Tell the nodes that reshape hidden values how many neurons there are now."""
        for reshape in nodes:
            node, place = feature_length(self.graph, reshape)
            constant = self.graph.constant(node.input[place])
            assert constant is not None
            lengths = constant.values.ravel().copy()
            lengths[-1] = neurons
            name = self.unused_name(f"{node.input[place]}{MERGED}")
            self.orphans.append(node.input[place])
            self.graph.add_tensor(make_tensor(name, lengths))
            self.graph.set_input(node, place, name)

    def write_affine(self, side: Affine, weight: FloatArray, bias: FloatArray) -> None:
        """Store W and b in the nodes of one affine map."""
        node, at = side.node, 1 if side.layout == "rows" else 0
        self.as_initializer = self.is_stored(node.input[at])
        transposed = side.layout == "rows" and not self.pop_gemm_scales(node)
        self.store(node, at, weight.T if transposed else weight)
        if node.op_type == "Gemm":
            self.write_gemm_bias(node, bias)
        elif side.carrier is not None:
            self.write_carrier(side.carrier, bias, side.layout)
        elif np.any(bias):
            self.insert_bias(side, bias)

    def pop_gemm_scales(self, node: NodeProto) -> bool:
        """Set alpha and beta to 1; return transB."""
        for attribute in [a for a in node.attribute if a.name in ("alpha", "beta")]:
            node.attribute.remove(attribute)
        return any(a.name == "transB" and a.i for a in node.attribute)

    def write_gemm_bias(self, node: NodeProto, bias: FloatArray) -> None:
        """Store C, or add it if the Gemm had none and needs one."""
        if len(node.input) > 2 and node.input[2]:
            self.store(node, 2, bias)
        elif np.any(bias):
            name = self.new_constant(node, f"{node.output[0]}_bias", bias)
            if len(node.input) > 2:
                self.graph.set_input(node, 2, name)
            else:
                self.graph.add_input(node, name)

    def write_carrier(self, node: NodeProto, bias: FloatArray, layout: Layout) -> None:
        """Store b in the Add that follows a MatMul."""
        at = 0 if self.graph.is_constant(node.input[0]) else 1
        rank = self.graph.rank(node.input[1 - at]) if layout == "columns" else None
        self.store(node, at, as_addend(bias, layout, rank))

    def insert_bias(self, side: Affine, bias: FloatArray) -> None:
        """Insert an Add after a MatMul that had none."""
        graph, node, value = self.graph, side.node, side.node.output[0]
        source = activation_input(node, side.layout)
        rank = graph.rank(source) if side.layout == "columns" else None
        addend = self.new_constant(node, f"{value}_bias", as_addend(bias, side.layout, rank))
        fresh = self.unused_name(f"{value}_sum")
        graph.copy_shape(value, fresh)
        readers = graph.consumers.get(value, [])
        if value in graph.outputs or not all(value in reader.input for reader in readers):
            graph.rename_output(node, fresh)
            added = make_add(f"{fresh}_add", fresh, addend, value)
        else:
            added = make_add(f"{fresh}_add", value, addend, fresh)
            self.rewire(value, fresh)
        graph.insert(added, graph.position(node) + 1)

    def resize(self, values: tuple[str, ...], neurons: int, layout: Layout) -> None:
        """Correct the recorded shapes of the hidden values."""
        for info in self.graph.model.graph.value_info:
            shape = info.type.tensor_type.shape
            if info.name in values and len(shape.dim):
                axis = -1 if layout == "rows" or len(shape.dim) == 1 else -2
                shape.dim[axis].Clear()
                shape.dim[axis].dim_value = neurons


def as_addend(bias: FloatArray, layout: Layout, rank: int | None) -> FloatArray:
    """A bias in the shape that broadcasts along the features."""
    return bias[:, None] if layout == "columns" and rank != 1 else bias
