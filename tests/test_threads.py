"""How many threads run: sizes and the user's variables decide, never the load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from onnxfde.threads import SMALL_MODEL, SMALL_PROBLEM, allowed_threads, few_threads, spare_threads
from tests.command.running import GLY

LIBRARIES = """
import json, sys
from onnxfde.command.main import app
app(sys.argv[1:], standalone_mode=False)
from onnxfde.running import runtime
from threadpoolctl import threadpool_info
blas = [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]
print(json.dumps([max(blas), runtime.session_options().intra_op_num_threads]))
"""


def blas_threads() -> int:
    """The most threads of any linear algebra library that is loaded."""
    return max(int(lib["num_threads"]) for lib in threadpool_info() if lib["user_api"] == "blas")


def test_small_layers_take_one_thread_and_large_ones_what_they_had() -> None:
    assert np.ones((2, 2)).sum() == 4
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with few_threads(SMALL_PROBLEM - 1):
            assert blas_threads() == 1
            with few_threads(SMALL_PROBLEM):
                assert blas_threads() == 1
        with few_threads(SMALL_PROBLEM):
            assert blas_threads() == before
        assert blas_threads() == before


@pytest.mark.parametrize(
    ("environment", "allowed"),
    [
        ({}, None),
        ({"OMP_NUM_THREADS": "3"}, 3),
        ({"OPENBLAS_NUM_THREADS": "2"}, 2),
        ({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "8"}, 1),
        ({"OMP_NUM_THREADS": " 4 ,2"}, 4),
        ({"OMP_NUM_THREADS": "0", "OPENBLAS_NUM_THREADS": "many"}, None),
        ({"OMP_NUM_THREADS": "-1", "OPENBLAS_NUM_THREADS": ""}, None),
    ],
)
def test_users_limit_threads_by_variables(environment: dict[str, str], allowed: int | None) -> None:
    assert allowed_threads(environment) == allowed


@pytest.mark.parametrize(
    ("size", "given", "wanted"),
    [(10, None, "1"), (10, "2", "2"), (SMALL_MODEL, None, None), (SMALL_MODEL, "2", "2")],
)
def test_small_model_files_limit_threads_unless_the_user_did(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    given: str | None,
    wanted: str | None,
) -> None:
    name, path = "OPENBLAS_NUM_THREADS", tmp_path / "in.onnx"
    with path.open("wb") as stream:
        stream.truncate(size)
    monkeypatch.setenv(name, given or "")
    if given is None:
        monkeypatch.delenv(name)
    spare_threads(path)
    assert os.environ.get(name) == wanted


@pytest.mark.parametrize("given", [{}, {"OMP_NUM_THREADS": "1"}])
def test_onnxruntime_takes_no_more_threads_than_the_user_allows(
    tmp_path: Path, given: dict[str, str]
) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    words = ["optimize", GLY, str(tmp_path / "o.onnx"), "-q", "--no-verify", "--quotient", "refit"]
    done = subprocess.run(
        [sys.executable, "-c", LIBRARIES, *words],
        env={**environment, **given},
        capture_output=True,
        text=True,
        check=True,
    )
    as_it_likes = 0
    assert json.loads(done.stdout) == [1, 1 if given else as_it_likes]
