"""The emulated ARM processor: its command, its counts, and whether its set-up is complete.

Tests of the real set-up are skipped where it has not been made.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from onnxfde.errors import TargetError
from onnxfde.machines.targets import provision, sysroot
from onnxfde.machines.targets.provision import set_up_arm64
from onnxfde.machines.targets.sysroot import CPUS, Sysroot, find_sysroot, read_counts

HWCAPS = {
    "fp": 0, "asimd": 1, "aes": 3, "pmull": 4, "sha1": 5, "sha2": 6, "crc32": 7, "atomics": 8,
    "fphp": 9, "asimdhp": 10, "cpuid": 11, "asimdrdm": 12, "lrcpc": 15, "dcpop": 16, "asimddp": 20,
}  # fmt: skip


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
    subprocess.run(command, check=True, timeout=120)
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
        done = subprocess.run(arguments, env=env, stdout=subprocess.PIPE, check=True, timeout=300)
        facts, flags, environment, path = json.loads(done.stdout)
        assert facts == ["aarch64", 1, sysroot.runtime_version()]
        assert flags == sum(1 << HWCAPS[feature] for feature in cpu.features.split())
        assert environment == sysroot.GUEST_ENVIRONMENT
        assert path
        assert all(Path(entry).is_relative_to(real.folder) for entry in path)
