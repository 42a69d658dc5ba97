"""The emulated ARM processor: what its set-up needs, that it is whole or not there, what it counts.

The set-up is made here with stand-ins for apt-get, dpkg, gcc, pip and qemu, which are real
processes but download nothing. Tests of the real one are skipped where it has not been made.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onnxfde.errors import TargetError
from onnxfde.machines.targets import provision, sysroot
from onnxfde.machines.targets.build_commands import complaint
from onnxfde.machines.targets.packages import GUEST_SITE
from onnxfde.machines.targets.provision import set_up_arm64
from onnxfde.machines.targets.sysroot import CPUS, Sysroot, find_sysroot, read_counts
from tests.machines.processes import wait_until

DEBIAN = {"ID": "debian", "VERSION_ID": "12", "PRETTY_NAME": "Debian GNU/Linux 12 (bookworm)"}
UBUNTU = {"ID": "ubuntu", "VERSION_ID": "24.04", "PRETTY_NAME": "Ubuntu 24.04.1 LTS"}
HWCAPS = {
    "fp": 0, "asimd": 1, "aes": 3, "pmull": 4, "sha1": 5, "sha2": 6, "crc32": 7, "atomics": 8,
    "fphp": 9, "asimdhp": 10, "cpuid": 11, "asimdrdm": 12, "lrcpc": 15, "dcpop": 16, "asimddp": 20,
}  # fmt: skip
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


def test_each_processor_shows_its_part_number_and_one_core() -> None:
    parts = {"cortex-a53": "0xd03", "cortex-a72": "0xd08", "cortex-a76": "0xd0b"}
    assert CPUS.keys() == parts.keys()
    for name, cpu in CPUS.items():
        files = cpu.files()
        facts = dict(re.findall(r"^(.+?)\t*: (.*)$", files["proc/cpuinfo"], re.MULTILINE))
        assert facts["CPU part"] == parts[name]
        assert facts["processor"] == "0"
        assert ("asimddp" in facts["Features"].split()) == (name == "cortex-a76")
        assert files["sys/devices/system/cpu/possible"] == "0\n"


def test_counts_are_read_from_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("10 2\n30 5\n")
    assert read_counts(log) == [(10, 2), (30, 5)]


@pytest.mark.parametrize("text", ["10\n", "10 x\n", None])
def test_a_log_without_counts_is_refused(text: str | None, tmp_path: Path) -> None:
    log = tmp_path / "log"
    if text is not None:
        log.write_text(text)
    with pytest.raises(TargetError, match="log holds no counts"):
        read_counts(log)


def test_the_counter_compiles_and_knows_the_marker(tmp_path: Path) -> None:
    found = re.search(r"MARKER = (0x[0-9a-f]+);", sysroot.COUNTER.read_text())
    assert found is not None
    assert int(found[1], 16) == sysroot.MARKER
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    library = tmp_path / "counter.so"
    command = ["gcc", *provision.CFLAGS, "-Wextra", "-o", str(library), str(sysroot.COUNTER)]
    subprocess.run(command, check=True)
    assert library.stat().st_size


def test_the_command_counts_only_if_asked_and_doubles_commas(tmp_path: Path) -> None:
    made = Sysroot(tmp_path / "a,b")
    plain, env = made.command("cortex-a53", ["-c", "pass"])
    assert plain[-2:] == ["-c", "pass"]
    assert "-plugin" not in plain
    assert env["ORT_DISABLE_TELEMETRY"] == "1"
    assert "PATH" not in env
    counting, _ = made.command("cortex-a53", [], Path("c,d"))
    option = counting[counting.index("-plugin") + 1]
    assert option == f"file={tmp_path}/a,,b/counter.so,out={Path.cwd()}/c,,d"
    with pytest.raises(TargetError, match="'cortex-a7'; there are cortex-a53, "):
        made.command("cortex-a7", [])


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "onnxfde"


@pytest.fixture
def ready(cache: Path) -> Path:
    folder = cache / "arm64"
    (folder / "guest" / "lib").mkdir(parents=True)
    (folder / "guest" / "lib" / "libc.so").write_text("libc")
    os.utime(folder / "guest" / "lib" / "libc.so", (0, 0))
    (folder / "cortex-a53").symlink_to("guest")
    sysroot.write_manifest(folder)
    return folder


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/some/where")
    assert sysroot.cache_folder() == Path("/some/where/onnxfde")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative, hence ignored")
    monkeypatch.setenv("HOME", "/home/me")
    assert sysroot.cache_folder() == Path("/home/me/.cache/onnxfde")
    monkeypatch.delenv("HOME")
    assert sysroot.cache_folder().is_absolute()
    monkeypatch.setenv("HOME", "nowhere")
    with pytest.raises(TargetError, match="no home folder; set XDG_CACHE_HOME"):
        set_up_arm64()


def test_without_a_set_up_it_is_said_how_to_make_one(cache: Path) -> None:
    with pytest.raises(TargetError, match=r"^arm64 is not set up; run: onnxfde target setup arm64"):
        find_sysroot()
    assert not cache.exists()


def test_a_set_up_that_is_ready_is_left_alone(ready: Path) -> None:
    before = sysroot.inventory(ready)
    assert set_up_arm64() is False
    assert find_sysroot() == Sysroot(ready)
    assert sysroot.inventory(ready) == before


def delete(folder: Path) -> None:
    (folder / "guest/lib/libc.so").unlink()


def truncate(folder: Path) -> None:
    os.truncate(folder / "guest/lib/libc.so", 1)


def edit(folder: Path) -> None:
    (folder / "guest/lib/libc.so").write_text("LIBC")


def forbid(folder: Path) -> None:
    (folder / "guest/lib/libc.so").chmod(0o600)


def add(folder: Path) -> None:
    (folder / "guest/lib/sitecustomize.py").write_text("")


def lead_elsewhere(folder: Path) -> None:
    (folder / "cortex-a53").unlink()
    (folder / "cortex-a53").symlink_to("/")


def scribble(folder: Path) -> None:
    (folder / "manifest.json").write_text("[]")


def forget(folder: Path) -> None:
    (folder / "manifest.json").unlink()


@pytest.mark.parametrize(
    ("harm", "file"),
    [
        (delete, "guest/lib/libc.so"),
        (truncate, "guest/lib/libc.so"),
        (edit, "guest/lib/libc.so"),
        (forbid, "guest/lib/libc.so"),
        (add, "guest/lib/sitecustomize.py"),
        (lead_elsewhere, "cortex-a53"),
        (scribble, "manifest.json"),
        (forget, "manifest.json"),
    ],
)
def test_damage_is_noticed_and_named(harm: Callable[[Path], None], file: str, ready: Path) -> None:
    harm(ready)
    with pytest.raises(TargetError, match=re.escape(f"arm64 is damaged ({file}); run: onnxfde")):
        find_sysroot()


def test_a_set_up_for_another_onnxruntime_is_outdated(ready: Path) -> None:
    manifest = ready / "manifest.json"
    noted = json.loads(manifest.read_text())
    noted["made from"]["onnxruntime"] = "0.1"
    manifest.write_text(json.dumps(noted))
    with pytest.raises(TargetError, match=r"arm64 is outdated \(onnxruntime has changed\); run: "):
        find_sysroot()


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
        assert wait_until(lambda: started.exists() and len(started.read_text().split()) == 2)
        yield process
        for pid in map(int, started.read_text().split()):
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
    stuck.wait()
    assert len(os.listdir(cache)) == 1
    replace(tools / "apt-get", TOOLS["apt-get"])

    def end_the_orphans(line: str) -> None:
        if line.startswith("waiting"):
            for pid in (tmp_path / "started").read_text().split():
                os.kill(int(pid), signal.SIGKILL)

    assert set_up_arm64(end_the_orphans) is True
    assert os.listdir(cache) == ["arm64"]


@pytest.fixture(scope="module")
def real() -> Sysroot:
    try:
        return find_sysroot()
    except TargetError as error:
        pytest.skip(str(error))


SHOW = """
import ctypes, json, os, platform, sys
import onnxruntime
facts = [platform.machine(), os.cpu_count(), onnxruntime.__version__]
print(json.dumps([facts, ctypes.CDLL(None).getauxval(16), dict(os.environ), sys.path]))
"""
"""The guest's processor, its capabilities (AT_HWCAP), its environment and its path."""


def test_every_processor_runs_onnxruntime_and_sees_only_what_it_should(
    real: Sysroot, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SECRET", "1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json.py").write_text("raise SystemExit('imported from the current folder')")
    for name, cpu in CPUS.items():
        arguments, env = real.command(name, ["-c", SHOW])
        done = subprocess.run(arguments, env=env, stdout=subprocess.PIPE, check=True)
        facts, flags, environment, path = json.loads(done.stdout)
        assert facts == ["aarch64", 1, sysroot.runtime_version()]
        assert flags == sum(1 << HWCAPS[feature] for feature in cpu.features.split())
        assert environment == sysroot.GUEST_ENVIRONMENT
        assert path
        assert all(Path(entry).is_relative_to(real.folder) for entry in path)
