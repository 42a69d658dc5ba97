"""Real inputs of a layer, of which a tenth is held out."""

from __future__ import annotations

import numpy as np

from onnxfde.neurons.held_out import Evidence
from onnxfde.neurons.layer import Layer
from onnxfde.neurons.piecewise_activations import RELU


def test_too_few_or_constant_or_infinite_rows_are_no_evidence() -> None:
    x = np.random.default_rng(0).normal(size=(200, 3))
    y = x[:, :1] ** 2
    assert Evidence(x, y).enough
    assert not Evidence(x[:99], y[:99]).enough
    assert not Evidence(x, np.ones_like(y)).enough
    assert not Evidence(x, np.where(y > 1, np.inf, y)).enough


def test_large_evidence_is_taken_in_batches_that_cover_it() -> None:
    x = np.arange(5000.0)[:, None]
    batches = [Evidence(x, x).batch(i, 100_000).inputs for i in range(3)]
    assert sorted(np.concatenate(batches).ravel()) == list(range(5000))
    assert len(Evidence(x, x).batch(0, 10).inputs) == 5000


def test_held_out_rows_are_whole_samples_drawn_at_random() -> None:
    position = np.tile(np.arange(10.0), 300)[:, None]
    whole = Evidence(position, position, rows_per_sample=10)
    assert sorted(set(whole.held_out.inputs.ravel())) == list(range(10))
    assert len(whole.held_out.inputs) == 300
    assert len(whole.fitted.inputs) == 2700
    single = Evidence(position, position)
    assert len(set(single.held_out.inputs.ravel())) == 10


def test_one_row_is_no_evidence() -> None:
    for rows in (1, 2, 9):
        x = np.random.default_rng(0).normal(size=(rows, 3))
        assert not Evidence(x, x).enough


def test_the_offset_leaves_no_mean_error() -> None:
    rng = np.random.default_rng(0)
    layer = Layer(rng.normal(size=(4, 4)), rng.normal(size=(2, 4)), np.zeros(2), RELU)
    x = rng.normal(size=(300, 3))
    evidence = Evidence(x, layer(x) + np.array([3.0, -1.0]))
    np.testing.assert_allclose(evidence.centred(layer).offset, [3.0, -1.0], rtol=0, atol=1e-12)
