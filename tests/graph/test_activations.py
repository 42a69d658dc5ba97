"""Every activation of the table is found in every spelling, and written back."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxfde.graph.edit import write_layer
from onnxfde.graph.match import Match, find_layers
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.neurons.activations import ACTIVATIONS
from onnxfde.numbers import ROUNDOFF
from tests.activation_spellings import KINDS, SPELLINGS, Spelled, spellings
from tests.models import outputs_of

CASES = list(spellings())
IDS = [case.id for case in CASES]
WRITTEN = [c for c in CASES if c.kind == "float" or c.wanted.unit_parameters or c.wanted.domain]
"""The kinds of numbers make no difference to writing, except where constants are written."""
X = np.random.default_rng(3).uniform(-2, 2, (40, 3))
ROUNDINGS = 32
"""Unit roundoffs of the largest possible output within which a layer and a runtime agree."""


def the_layer(model: ModelProto) -> tuple[Graph, Match]:
    graph = Graph(model)
    (match,), refused = find_layers(graph)
    assert not refused
    return graph, match


def roundoff(case: Spelled) -> float:
    """onnx.reference computes Erf in float32, also of double."""
    u = ROUNDOFF[np.dtype(KINDS[case.kind]).name]
    single = "Erf" in case.wanted.body or "Gelu" in case.wanted.body
    return max(u, case.wanted.rough, ROUNDOFF["float32"] if single else 0.0)


def check_outputs(model: ModelProto, match: Match, case: Spelled) -> None:
    layer, x = match.layer, X.astype(KINDS[case.kind])
    (out,) = outputs_of(model, x)
    hidden = np.abs(layer.hidden(X)).max() + np.abs(layer.incoming).sum(axis=1).max()
    off = ROUNDINGS * roundoff(case) * (np.abs(layer.outgoing).sum(axis=1).max() * hidden)
    np.testing.assert_allclose(
        out.astype(np.float64), layer(x.astype(np.float64)), rtol=0, atol=off
    )


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_an_activation_is_found_and_computed(case: Spelled) -> None:
    graph, match = the_layer(case.model)
    layer, wanted = match.layer, case.wanted
    assert layer.activation.name == wanted.activation.name
    u = ROUNDOFF[np.dtype(KINDS[case.kind]).name]
    off = 8 * max(u, wanted.rough)
    np.testing.assert_allclose(layer.activation.constants, wanted.activation.constants, rtol=off)
    for found, slopes in zip(layer.unit_parameters, wanted.unit_parameters, strict=True):
        np.testing.assert_allclose(found, slopes, rtol=u)
    check_outputs(graph.model, match, case)


@pytest.mark.parametrize("case", WRITTEN, ids=[case.id for case in WRITTEN])
def test_a_layer_with_fewer_neurons_is_written_back(case: Spelled) -> None:
    model = ModelProto()
    model.CopyFrom(case.model)
    kind = model.graph.input[0].type.tensor_type.elem_type
    infos = (onnx.helper.make_tensor_value_info(name, kind, [None, 6]) for name in "hs")
    model.graph.value_info.extend(infos)
    graph, match = the_layer(model)
    write_layer(graph, match, match.layer.only([0, 2, 5]))
    onnx.checker.check_model(model, full_check=not case.wanted.domain)
    _, now = the_layer(model)
    assert now.layer.neurons == 3
    assert now.layer.activation == match.layer.activation
    wanted, u = match.layer.only([0, 2, 5]), ROUNDOFF[np.dtype(KINDS[case.kind]).name]
    np.testing.assert_allclose(now.layer.incoming, wanted.incoming, rtol=u)
    np.testing.assert_allclose(now.layer.outgoing, wanted.outgoing, rtol=4 * u)
    check_outputs(model, now, case)


def test_every_row_of_the_table_has_a_spelling() -> None:
    covered = {wanted.activation.name for wanted in SPELLINGS.values()}
    assert covered | {"Identity"} == set(ACTIVATIONS)
