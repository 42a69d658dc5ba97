"""Layers merged one after the other: the network is run once for all of them, then part by part."""

from __future__ import annotations

import numpy as np
import pytest

from onnxfde.graph.match import find_layers
from onnxfde.graph.model import Graph
from onnxfde.options import MergeOptions, Quotient
from onnxfde.passes import Context, MergeNeurons
from onnxfde.passes.layer_study import LayerStudies
from tests.models import outputs_of
from tests.running.square_chain import ROWS, WIDTH, PartRun, source_of, square_chain, watch_parts


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[PartRun]:
    return watch_parts(monkeypatch)


def chain_context(memory: bool = False) -> tuple[Graph, Context]:
    model = square_chain()
    return Graph(model), Context(source_of(model), memory={} if memory else None)


def started(options: MergeOptions, graph: Graph, context: Context) -> LayerStudies:
    return LayerStudies.started(options, context, graph, graph, find_layers(graph)[0])


@pytest.mark.parametrize("quotient", ["refit", "minimal"])
def test_every_part_of_a_chain_is_run_once_more_while_it_is_merged(
    parts: list[PartRun], quotient: Quotient
) -> None:
    graph, context = chain_context()
    result = MergeNeurons(eps=0, quotient=quotient).apply(graph, context)
    assert [layer.neurons_after for layer in result.layers] == [WIDTH // 2] * 5
    assert [(part.reads, part.computes) for part in parts[1:]] == [
        (["x"], ["h1", "s1"]),
        (["s1"], ["h2", "s2"]),
        (["s2"], ["h3", "s3"]),
        (["s3"], ["h4", "s4"]),
    ]
    assert {tuple(part.batches) for part in parts} == {(1024, 476)}
    np.testing.assert_allclose(
        outputs_of(result.model, ROWS)[0], outputs_of(graph.model, ROWS)[0], rtol=0, atol=1e-6
    )


def test_the_network_is_run_once_if_nothing_merges(parts: list[PartRun]) -> None:
    graph, context = chain_context()
    studies = started(MergeOptions(), graph, context)
    for match in find_layers(graph)[0]:
        studies.study(match, match)
    assert len(parts) == 1


def test_only_the_part_between_two_selected_layers_is_run_again(parts: list[PartRun]) -> None:
    graph, context = chain_context()
    merge = MergeNeurons(eps=0, quotient="refit", layers=("l2", "l4"))
    assert len(merge.apply(graph, context).layers) == 2
    assert [(part.reads, part.wanted) for part in parts] == [
        (["x"], ["s1", "s3"]),
        (["s1"], ["s3"]),
    ]
    assert parts[1].computes == ["h2", "s2", "h3", "s3"]


def test_a_layer_behind_an_unknown_operator_does_not_spoil_the_others() -> None:
    model = square_chain(3, unknown=True)
    result = MergeNeurons(eps=0).apply(Graph(model), Context(source_of(model)))
    assert [layer.neurons_after for layer in result.layers] == [WIDTH // 2] * 3
    remarks = {layer.name: layer.remark for layer in result.layers}
    assert (remarks["l1"], remarks["l2"]) == (None, None)
    assert "its inputs could not be measured" in (remarks["l3"] or "")


def test_with_a_memory_another_eps_needs_no_new_run_for_the_same_choices(
    parts: list[PartRun],
) -> None:
    graph, context = chain_context(memory=True)
    first = MergeNeurons(eps=0, quotient="refit").apply(graph, context)
    runs = len(parts)
    again = MergeNeurons(eps=1e-9, quotient="refit").apply(graph, context)
    assert len(parts) == runs
    assert again.model == first.model


def test_a_study_is_remembered_with_what_layers_before_it_became() -> None:
    graph, context = chain_context(memory=True)
    studies = started(MergeOptions(eps=0.1, quotient="refit"), graph, context)
    one, two = find_layers(graph)[0][:2]
    alone = studies.study(two, two)
    assert studies.study(two, two) is alone
    other_eps = started(MergeOptions(eps=0.3, quotient="refit"), graph, context)
    assert other_eps.study(two, two) is alone
    other_method = started(MergeOptions(eps=0.1, quotient="single"), graph, context)
    assert other_method.study(two, two) is not alone
    reduced = studies.study(one, one).frontier.at_most(2)
    assert reduced is not None
    studies.note_replaced(one, reduced)
    assert studies.study(two, two) is not alone


def test_without_a_memory_nothing_is_remembered() -> None:
    graph, context = chain_context()
    studies = started(MergeOptions(quotient="refit"), graph, context)
    match = find_layers(graph)[0][0]
    assert studies.study(match, match) is not studies.study(match, match)


def test_the_measured_error_is_that_on_rows_held_out() -> None:
    graph, context = chain_context()
    match = find_layers(graph)[0][0]
    study = started(MergeOptions(), graph, context).study(match, match)
    evidence = study.problem.evidence
    assert evidence is not None
    smaller = study.problem.layer.only([0, 1])
    assert study.measured_error(smaller, merged=True).value == evidence.held_out.error(smaller) > 0
    assert study.measured_error(study.problem.layer, merged=False).value == 0
    blocks = started(MergeOptions(quotient="refit"), graph, context).study(match, match)
    assert blocks.problem.evidence is None
    samples = blocks.problem.samples
    expected = study.problem.layer.change_to(smaller, samples)
    assert blocks.measured_error(smaller, merged=True).value == expected > 0
