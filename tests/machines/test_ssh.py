"""A board over ssh, played by an openssh-server on the loopback with throw-away keys."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxfde.errors import UsageError
from onnxfde.machines.benchmark import bench
from onnxfde.machines.results import Comparison
from onnxfde.machines.targets.base import parse_target
from onnxfde.machines.targets.ssh import SSH_VARIABLE, Ssh
from tests.machines.networks import unknown_operator_network
from tests.machines.processes import runners, running_bench, wait_until
from tests.machines.sshd import Server, free_port, serving
from tests.models import mlp, twins


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("ssh")) as found:
        yield found


@pytest.fixture
def board(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv(SSH_VARIABLE, server.command)
    return server


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(mlp(*twins()), tmp_path / "a.onnx")
    return tmp_path / "a.onnx"


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python without any package."""
    folder = tmp_path_factory.mktemp("bare")
    command = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(command, check=True, timeout=120)
    return str(folder / "bin" / "python3")


@pytest.fixture(scope="module")
def measured(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """A model, the same with its weights in another file, and one that cannot run."""
    folder = tmp_path_factory.mktemp("models")
    plain, outside, broken = (folder / f"{name}.onnx" for name in ("plain", "outside", "broken"))
    network = mlp(*twins())
    onnx.save(network, plain)
    onnx.save(network, outside, save_as_external_data=True, location="w", size_threshold=0)
    onnx.save(unknown_operator_network(), broken)
    target = server.target(sys.executable)
    x = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SSH_VARIABLE, server.command)
        files = [plain, outside, broken]
        return bench(files, targets=[target], batches=[1, 7], data={"x": x}, seconds=0)


def test_models_with_their_weights_are_measured_on_the_board(measured: Comparison) -> None:
    (place,) = measured.targets
    assert place.error is None
    for line in place.lines[:2]:
        assert line.error is None
        assert [run.batch for run in line.latencies] == [1, 7]
        assert all(run.p50 and run.p50 > 0 for run in line.latencies)


def test_numbers_travel_unchanged(measured: Comparison) -> None:
    for line in measured.targets[0].lines[:2]:
        assert [run.difference for run in line.latencies] == [0.0, 0.0]


def test_a_model_that_fails_on_the_board_has_an_error_in_its_row(measured: Comparison) -> None:
    assert "Unheard" in (measured.targets[0].lines[2].error or "")
    assert measured.failed


def test_the_board_is_left_as_it_was(server: Server, measured: Comparison) -> None:
    assert measured.targets[0].error is None
    assert server.wait_until_clean() == []


def test_missing_packages_are_named_with_the_command_that_installs_them(
    board: Server, model: Path, bare_python: str
) -> None:
    (place,) = bench([model], targets=[board.target(bare_python)], seconds=0).targets
    assert "numpy and onnxruntime not installed there" in (place.error or "")
    assert "-m pip install numpy onnxruntime" in (place.error or "")
    assert board.wait_until_clean() == []


def test_a_python_that_is_not_there_is_explained(board: Server, model: Path) -> None:
    (place,) = bench([model], targets=[board.target("/no/such/python3")], seconds=0).targets
    assert "there is no /no/such/python3 there" in (place.error or "")
    assert f"127.0.0.1:{board.port}/path/to/python3" in (place.error or "")
    assert board.wait_until_clean() == []


def test_another_program_than_python_is_explained(board: Server, model: Path) -> None:
    (place,) = bench([model], targets=[board.target("/bin/true")], seconds=0).targets
    assert "/bin/true gave no answer (exit code 0); is it Python 3.9 or newer?" in (
        place.error or ""
    )


def test_an_ssh_that_cannot_be_started_leaves_the_other_targets(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SSH_VARIABLE, "/no/such/ssh -v")
    here, there = bench([model], targets=["cpu", "ssh://board"], seconds=0).targets
    assert here.lines[0].latencies[0].p50
    assert "'/no/such/ssh' cannot be started" in (there.error or "")


def test_a_command_for_ssh_that_cannot_be_read_is_refused(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SSH_VARIABLE, "ssh -o 'x")
    with pytest.raises(UsageError, match="ONNXFDE_SSH"):
        bench([model], targets=["ssh://board"], seconds=0)


def test_a_refused_connection_is_explained(board: Server, model: Path) -> None:
    target = f"ssh://127.0.0.1:{free_port()}"
    (place,) = bench([model], targets=[target], seconds=0).targets
    assert "Connection refused" in (place.error or "")
    assert f"check that this works first: {board.command} -oBatchMode=yes -p" in (place.error or "")


def test_a_wrong_key_is_explained_and_nothing_is_asked(
    board: Server, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = board.temporary.parent
    config = (folder / "ssh_config").read_text().replace(f"{folder}/key", f"{folder}/stranger")
    (folder / "stranger_config").write_text(config)
    monkeypatch.setenv(SSH_VARIABLE, f"ssh -F {folder}/stranger_config")
    (place,) = bench([model], targets=[board.target()], seconds=0).targets
    assert "Permission denied" in (place.error or "")


def test_an_unknown_host_key_is_not_accepted(
    board: Server, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = f"{board.command} -o UserKnownHostsFile=/dev/null"
    monkeypatch.setenv(SSH_VARIABLE, options)
    (place,) = bench([model], targets=[board.target()], seconds=0).targets
    assert "Host key verification failed" in (place.error or "")


def test_a_target_that_takes_too_long_is_given_up(board: Server, model: Path) -> None:
    target = board.target(sys.executable)
    (place,) = bench([model], targets=[target], seconds=0.7, timeout=0.8).targets
    assert "it took longer than 0.8 s; raise --timeout" in (place.error or "")
    assert board.wait_until_clean() == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_behind_when_killed_in_the_middle(
    board: Server, model: Path, how: signal.Signals
) -> None:
    options = ("--seconds", "120", "--target", board.target(sys.executable))
    with running_bench(model, *options) as process:
        assert wait_until(lambda: bool(runners(board.temporary)))
        process.send_signal(how)
        assert process.wait(30) != 0
    assert board.wait_until_clean() == []


def test_nothing_is_left_behind_when_the_connection_dies(board: Server, model: Path) -> None:
    report = model.with_suffix(".json")
    options = ("--seconds", "120", "--target", board.target(sys.executable), "--json", str(report))
    with running_bench(model, *options) as process:
        assert wait_until(lambda: bool(runners(board.temporary)))
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        assert process.wait(30) == 1
    content = json.loads(report.read_text())
    assert content["targets"][0]["error"]
    assert board.wait_until_clean() == []


@pytest.mark.parametrize(
    ("text", "host", "port", "python"),
    [
        ("ssh://pi@board", "pi@board", None, "python3"),
        ("ssh://Board:2222", "Board", 2222, "python3"),
        ("ssh://pi@[::1]:22/opt/venv/bin/python", "pi@::1", 22, "/opt/venv/bin/python"),
        ("ssh://board/", "board", None, "python3"),
    ],
)
def test_addresses(text: str, host: str, port: int | None, python: str) -> None:
    found = parse_target(text)
    assert isinstance(found, Ssh)
    assert (found.host, found.port, found.python) == (host, port, python)


@pytest.mark.parametrize(
    "text",
    ["ssh://", "ssh:board", "ssh://board:port", "ssh://-oProxyCommand=x", "ssh://pi:secret@board"],
)
def test_addresses_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--target ssh"):
        parse_target(text)
