"""Making the emulated ARM processor: what it needs, and that it is complete or not there.

Stand-ins for apt-get, dpkg, gcc, pip and qemu are used: real processes that download nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onnxfde.errors import TargetError
from onnxfde.machines.targets import provision, sysroot
from onnxfde.machines.targets.build_commands import complaint
from onnxfde.machines.targets.debian_packages import GUEST_SITE
from onnxfde.machines.targets.provision import set_up_arm64
from onnxfde.machines.targets.sysroot import CPUS, Sysroot, find_sysroot
from tests.machines.processes import wait_until

DEBIAN = {"ID": "debian", "VERSION_ID": "12", "PRETTY_NAME": "Debian GNU/Linux 12 (bookworm)"}


UBUNTU = {"ID": "ubuntu", "VERSION_ID": "24.04", "PRETTY_NAME": "Ubuntu 24.04.1 LTS"}


PYTHON = sys.executable


@pytest.mark.parametrize(
    ("machine", "release", "missing", "says"),
    [
        ("aarch64", DEBIAN, [], "this machine is ARM, use --target cpu"),
        ("x86_64", UBUNTU, [], "Debian 12 on x86_64 only, not on Ubuntu 24.04.1 LTS on x86_64"),
        ("x86_64", {**DEBIAN, "VERSION_ID": "13"}, [], "Debian 12 on x86_64 only"),
        ("riscv64", DEBIAN, [], "on riscv64"),
        ("AMD64", {}, [], "an unknown system on AMD64"),
        ("x86_64", DEBIAN, ["gcc", "pip"], "cannot be set up without gcc, pip;"),
    ],
)
def test_a_machine_that_cannot_have_it_is_told_why_and_what_else(
    machine: str, release: dict[str, str], missing: list[str], says: str
) -> None:
    problem = provision.obstacle(machine, release, missing)
    assert problem is not None
    assert says in problem
    assert "--target ssh://user@host" in problem
    assert "\n" not in problem


def test_debian_12_with_its_tools_is_enough() -> None:
    assert provision.obstacle("x86_64", DEBIAN, []) is None


def test_missing_tools_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: DEBIAN)
    with pytest.raises(TargetError, match="cannot be set up without apt-get, dpkg, gcc"):
        provision.refuse_unable_machine()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "W: Failed to fetch http://a/InRelease  Could not resolve 'a'\n"
            "W: Some index files failed to download.\nE: Unable to locate package qemu-user\n",
            "W: Failed to fetch http://a/InRelease  Could not resolve 'a'",
        ),
        (
            "WARNING: Retrying\nERROR: Could not find a version (from versions: none)\n"
            "ERROR: No matching distribution found for onnxruntime==9\n\nnotice\n",
            "ERROR: No matching distribution found for onnxruntime==9",
        ),
        ("one\n two \n\n", "two"),
        ("", ""),
    ],
)
def test_the_line_that_says_most_is_shown(text: str, line: str) -> None:
    assert complaint(text) == line


def test_a_set_up_that_is_ready_is_left_alone(ready: Path) -> None:
    before = sysroot.inventory(ready)
    assert set_up_arm64() is False
    assert find_sysroot() == Sysroot(ready)
    assert sysroot.inventory(ready) == before


TOOLS = {
    "apt-get": """
        folder=${3%/*}/cache/archives
        mkdir -p $folder
        : >$folder/a.deb
    """,
    "dpkg": """
        mkdir -p $3/usr/bin $3/usr/lib/python3 $3/lib $3/usr/lib/x86_64-linux-gnu
        : >$3/usr/bin/python3.11
        ln -s /etc/passwd $3/usr/lib/leak
        cp ${0%/*}/qemu $3/usr/bin/qemu-aarch64
    """,
    "qemu": """
        for word; do case $word in file=*) echo 7 3 >${word##*,out=} ;; esac; done
        echo VERSION
    """,
    "gcc": """
        while [ $1 != -o ]; do shift; done
        : >$2
    """,
    "python": """
        while [ $1 != --target ]; do shift; done
        mkdir -p $2/numpy/tests $2/onnxruntime
    """,
}


@pytest.fixture
def tools(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins for the tools, which can be replaced one by one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, script in TOOLS.items():
        replace(folder / name, script.replace("VERSION", sysroot.runtime_version()))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setattr(provision, "refuse_unable_machine", lambda: None)
    monkeypatch.setattr(provision, "INSTALLED", Path(os.devnull))
    return folder


def replace(tool: Path, script: str) -> None:
    tool.write_text(f"#!/bin/sh\nset -e\n{script}\n")
    tool.chmod(0o755)


def test_a_set_up_is_made_repaired_and_made_again_if_forced(cache: Path, tools: Path) -> None:
    said: list[str] = []
    assert set_up_arm64(said.append) is True
    assert [line.split()[0] for line in said] == ["downloading", "unpacking", "checking"]
    assert os.listdir(cache) == ["arm64"]
    folder = find_sysroot().folder
    assert {p.name for p in folder.iterdir()} == {
        *CPUS, "counter.so", "guest", "host", "manifest.json",
    }  # fmt: skip
    assert (folder / "cortex-a76" / "usr" / "bin" / "python3.11").is_file()
    assert (folder / "guest" / GUEST_SITE / "onnxruntime").is_dir()
    assert not (folder / "guest" / GUEST_SITE / "numpy" / "tests").exists()
    assert not os.path.lexists(folder / "guest" / "usr" / "lib" / "leak")
    assert set_up_arm64() is False
    (folder / "counter.so").unlink()
    assert set_up_arm64() is True
    assert (find_sysroot().folder / "counter.so").exists()
    assert set_up_arm64(force=True) is True
    assert os.listdir(cache) == ["arm64"]


@pytest.mark.parametrize(
    ("tool", "script", "says"),
    [
        ("apt-get", "echo 'E: No package' >&2; exit 100", "apt-get failed (E: No package)"),
        ("python", "echo 'ERROR: No wheel' >&2; exit 1", "pip failed (ERROR: No wheel)"),
        ("qemu", "kill -ILL $$", "the emulated cortex-a53 failed (exit code -4)"),
        ("qemu", "echo 0.1", "the emulated cortex-a53 does not count"),
    ],
)
def test_a_failure_is_one_line_and_leaves_nothing(
    tool: str, script: str, says: str, cache: Path, tools: Path
) -> None:
    replace(tools / tool, script)
    with pytest.raises(TargetError, match=re.escape(says)) as caught:
        set_up_arm64()
    assert "\n" not in str(caught.value)
    assert os.listdir(cache) == []


def test_a_failure_leaves_what_was_there(cache: Path, ready: Path, tools: Path) -> None:
    before = sysroot.inventory(ready)
    replace(tools / "gcc", "exit 1")
    with pytest.raises(TargetError, match=r"gcc failed \(exit code 1\)"):
        set_up_arm64(force=True)
    assert sysroot.inventory(ready) == before
    assert os.listdir(cache) == ["arm64"]


def test_a_cache_that_cannot_be_written_is_named(cache: Path, tools: Path) -> None:
    cache.parent.write_text("a file, not a folder")
    with pytest.raises(TargetError, match=r"onnxfde \(.*\); set XDG_CACHE_HOME to another folder"):
        set_up_arm64()


def test_a_second_set_up_waits_for_the_first(ready: Path, tools: Path) -> None:
    (ready / "counter.so").write_text("damage")
    first = os.open(ready.parent, os.O_RDONLY)
    fcntl.flock(first, fcntl.LOCK_EX)

    def finish(line: str) -> None:
        assert line == "waiting for another set-up to end"
        (ready / "counter.so").unlink()
        os.close(first)

    assert set_up_arm64(finish) is False


@pytest.fixture
def stuck(cache: Path, tools: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A set-up, as the command line runs it, while apt-get downloads for ever."""
    started = tmp_path / "started"
    replace(tools / "apt-get", f"echo $$ >>{started}; exec sleep 60")
    code = (
        "import signal, sys; from pathlib import Path\n"
        "from onnxfde.machines.targets import provision\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        f"sys.executable = {str(tools / 'python')!r}\n"
        "provision.refuse_unable_machine = lambda: None\n"
        "provision.INSTALLED = Path('/dev/null'); provision.set_up_arm64()"
    )
    root = Path(sysroot.__file__).parents[3]
    with subprocess.Popen([PYTHON, "-c", code], cwd=root, stderr=subprocess.DEVNULL) as process:
        try:
            assert wait_until(lambda: started.exists() and len(started.read_text().split()) == 2)
            yield process
        finally:
            process.kill()
            for pid in map(int, started.read_text().split() if started.exists() else ()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_leaves_nothing(
    number: signal.Signals, stuck: subprocess.Popen[bytes], cache: Path, tmp_path: Path
) -> None:
    stuck.send_signal(number)
    assert stuck.wait(30) != 0
    assert os.listdir(cache) == []
    children = (tmp_path / "started").read_text().split()
    assert wait_until(lambda: not any(Path("/proc", child).exists() for child in children))


def test_what_a_killed_set_up_left_is_removed_by_the_next(
    stuck: subprocess.Popen[bytes], cache: Path, tools: Path, tmp_path: Path
) -> None:
    stuck.kill()
    stuck.wait(30)
    assert len(os.listdir(cache)) == 1
    replace(tools / "apt-get", TOOLS["apt-get"])

    def end_the_orphans(line: str) -> None:
        if line.startswith("waiting"):
            for pid in (tmp_path / "started").read_text().split():
                os.kill(int(pid), signal.SIGKILL)

    assert set_up_arm64(end_the_orphans) is True
    assert os.listdir(cache) == ["arm64"]
