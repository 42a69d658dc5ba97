"""All sources of the corpus, by group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.common.folders import SHARED
from benchmarks.corpus import backend_tests, exports, packages
from benchmarks.corpus.cases import Case, Source


def shared_models() -> Source:
    """The models of the shared folder."""
    folder = SHARED / "models"
    paths = sorted(folder.glob("*.onnx"))
    skipped = "" if paths else "the shared folder beside the checkout is missing"
    cases = tuple(Case("shared", path.stem, path) for path in paths)
    return Source("shared", "shared/models", cases, skipped=skipped)


def finders(pythons: list[str]) -> Iterator[tuple[str, Callable[[], Source]]]:
    """Each group, and what finds (a part of) its models."""
    for group in backend_tests.IN_THE_WHEEL:
        yield group, partial(backend_tests.in_the_wheel, group)
    yield backend_tests.GENERATED, backend_tests.generated
    for name in packages.NAMES:
        yield packages.GROUP, partial(packages.package_models, name)
    yield packages.GROUP, packages.runtime_datasets
    yield "shared", shared_models
    for exporter in exports.EXPORTERS:
        yield exporter, partial(exports.exported, exporter, pythons)
