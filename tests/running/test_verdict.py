"""The headline is measured on rows that had no part in making the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxfde
from onnxfde.demo import demo_data, demo_model
from onnxfde.graph.input_specs import input_specs
from onnxfde.graph.model import Graph
from onnxfde.graph.protos import ModelProto
from onnxfde.options import Quotient
from onnxfde.row_split import JUDGED
from onnxfde.running.samples import FEWEST_PARTED, Samples, make_samples
from tests.models import mlp
from tests.passes.test_one_way import chain


def samples_of(model: ModelProto, **data: Any) -> Samples:
    return make_samples(data, input_specs(Graph(model)), "test")


def demo_rows() -> dict[str, Any]:
    with np.load(demo_data()) as rows:
        return {name: rows[name] for name in rows.files}


@pytest.mark.parametrize("rows", [100, 101, 257, 5000])
def test_every_sample_is_on_one_side_with_its_label(rows: int) -> None:
    model = mlp(*(np.ones(s, dtype=np.float32) for s in ((4, 1), (4,), (1, 4), (1,))))
    numbers = np.arange(rows, dtype=np.float32)
    parts = samples_of(model, x=numbers[:, None], y=numbers.astype(np.int64)).parted()
    assert parts is not None
    found = [part.arrays["x"].ravel() for part in parts]
    assert sorted(np.concatenate(found)) == list(range(rows))
    assert len(found[1]) == -(-rows // JUDGED)
    for part, own in zip(parts, found, strict=True):
        np.testing.assert_array_equal(part.labels, own)


def test_a_fixed_batch_is_never_torn_apart() -> None:
    model = mlp(*(np.ones(s, dtype=np.float32) for s in ((4, 1), (4,), (1, 4), (1,))), batch="4")
    parts = samples_of(model, x=np.arange(200, dtype=np.float32)[:, None]).parted()
    assert parts is not None
    for part in parts:
        batches = part.arrays["x"].reshape(-1, 4)
        assert np.all(np.diff(batches, axis=1) == 1)
        assert np.all(batches[:, 0] % 4 == 0)


@pytest.mark.parametrize("quotient", ["minimal", "refit"])
@pytest.mark.parametrize("int8", [None, "static"])
def test_rows_kept_for_the_verdict_do_not_change_the_result(
    quotient: Quotient, int8: Any, tmp_path: Path
) -> None:
    """Those rows are replaced by others: the weights stay, the measured error does not."""
    data, model = demo_rows(), demo_model()
    order = np.random.default_rng(20).permutation(300)
    other = {name: a.copy() for name, a in data.items()}
    kept = order % JUDGED == 0
    other["x"][kept] = 1 - other["x"][kept]
    results = [
        onnxfde.optimize(
            model,
            neurons=9,
            data=each,
            quotient=quotient,
            int8=int8,
            certify=None if int8 else False,
        )
        for each in (data, other)
    ]
    weights = [[t.raw_data for t in result.model.graph.initializer] for result in results]
    assert weights[0] == weights[1]
    first, second = (result.report for result in results)
    assert first.verification is not None
    assert second.verification is not None
    assert first.verification.held_out
    assert first.verification.relative_l2 != second.verification.relative_l2
    assert first.layers[0].measured_error != second.layers[0].measured_error


def test_with_too_few_rows_the_report_says_that_they_were_fitted_to(tmp_path: Path) -> None:
    data = {name: a[: FEWEST_PARTED - 1] for name, a in demo_rows().items()}
    found = onnxfde.optimize(demo_model(), 0.1, data=data).report.verification
    assert found is not None
    assert (found.held_out, found.samples) == (False, FEWEST_PARTED - 1)


def test_without_verification_all_rows_are_fitted_to() -> None:
    results = [
        onnxfde.optimize(demo_model(), neurons=9, data=demo_data(), verify=verify)
        for verify in (True, False)
    ]
    weights = [[t.raw_data for t in result.model.graph.initializer] for result in results]
    assert weights[0] != weights[1]


def test_later_layers_are_judged_on_the_same_rows() -> None:
    x = np.random.default_rng(1).uniform(-1, 1, (500, 3)).astype(np.float32)
    report = onnxfde.optimize(chain(2), 0.05, data={"x": x}, quotient="refit").report
    assert report.verification is not None
    assert report.verification.samples == 100
    assert report.layers[-1].measured_error == pytest.approx(
        report.verification.relative_l2, rel=1e-3
    )


def test_arrays_of_whole_batches_are_split_run_by_run() -> None:
    model = mlp(*(np.ones(s, dtype=np.float32) for s in ((4, 1), (4,), (1, 4), (1,))), batch="4")
    numbers = np.arange(120 * 4, dtype=np.float32).reshape(120, 4, 1)
    parts = samples_of(model, x=numbers).parted()
    assert parts is not None
    assert [len(part.arrays["x"]) for part in parts] == [96, 24]


def test_whether_rows_were_kept_is_part_of_the_settings() -> None:
    reports = [
        onnxfde.optimize(demo_model(), neurons=9, data=demo_data(), verify=verify).report
        for verify in (True, False)
    ]
    assert reports[0].settings != reports[1].settings
