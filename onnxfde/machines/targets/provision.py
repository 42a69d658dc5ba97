"""Making the AArch64 Linux of `sysroot` in the cache folder, without root.

It is built in a temporary folder beside its place and renamed once it has proved to work, so that
there is either a complete set-up or none.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from onnxfde.errors import TargetError
from onnxfde.machines.targets.base import Say
from onnxfde.machines.targets.build_commands import USE_A_BOARD, Command, run_commands
from onnxfde.machines.targets.debian_packages import (
    GUEST_PACKAGES,
    GUEST_SITE,
    UNUSED_PACKAGES,
    apt_download,
    pip_download,
    pretended_status,
    prune_guest,
    unpack_packages,
)
from onnxfde.machines.targets.sysroot import (
    COUNTER,
    CPUS,
    HOST_LIBRARIES,
    INTERPRETER,
    MARKER,
    QEMU,
    SYSROOT_NAME,
    EmulatedCpu,
    Sysroot,
    cache_folder,
    deviation,
    read_counts,
    runtime_version,
    write_manifest,
)

DEBIAN_VERSION = "12"
"""Its packages have the versions that this module relies on: Python 3.11, qemu 7.2."""
INSTALLED = Path("/var/lib/dpkg/status")
TOOLS = ("apt-get", "dpkg", "gcc")
CFLAGS = ("-shared", "-fPIC", "-O2", "-Wall", "-Werror")
EMULATION_CHECK = f"""
import argparse, base64, hashlib, json, os, platform, subprocess, tempfile, threading
import numpy, onnxruntime
print(onnxruntime.__version__)
try:
    os.getpgid({MARKER})
except ProcessLookupError:
    pass
"""
"""Imports what the runner does, so that the bytecode is there, and reaches one marker."""


def set_up_arm64(say: Say = lambda text: None, force: bool = False) -> bool:
    """Make the set-up unless it is complete; return whether there was anything to do."""
    cache = cache_folder()
    target = cache / SYSROOT_NAME
    if not force and deviation(target) is None:
        return False
    refuse_unable_machine()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with locked(cache, say):
            for stale in cache.glob(f"{SYSROOT_NAME}-*"):
                shutil.rmtree(stale)
            if not force and deviation(target) is None:
                return False
            with tempfile.TemporaryDirectory(
                prefix=f"{SYSROOT_NAME}-", dir=cache, ignore_cleanup_errors=True
            ) as temporary:
                made = build_sysroot(Path(temporary), say)
                put_in_place(target, made, Path(temporary) / "before")
    except OSError as error:
        raise TargetError(
            f"{SYSROOT_NAME} cannot be set up in {cache} ({error.strerror or error}); "
            "set XDG_CACHE_HOME to another folder"
        ) from None
    return True


def put_in_place(target: Path, made: Path, before: Path) -> None:
    """Move a new set-up to its place, and the old one, if any, to `before`."""
    if os.path.lexists(target):
        target.rename(before)
    made.rename(target)


@contextlib.contextmanager
def locked(folder: Path, say: Say) -> Iterator[None]:
    """Hold a lock on a folder; child processes inherit it, so that orphans are waited for too."""
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.set_inheritable(descriptor, True)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another set-up to end")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def refuse_unable_machine() -> None:
    """Refuse a machine on which the set-up cannot be made."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if importlib.util.find_spec("pip") is None:
        missing.append("pip")
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {"PRETTY_NAME": platform.system()}
    problem = obstacle(platform.machine(), release, missing)
    if problem is not None:
        raise TargetError(problem)


def obstacle(machine: str, release: Mapping[str, str], missing: Sequence[str]) -> str | None:
    """Why the set-up cannot be made on a machine, and what to do instead."""
    name = SYSROOT_NAME
    if machine in ("aarch64", "arm64"):
        return (
            f"{name} is not emulated here: this machine is ARM, use --target cpu, or {USE_A_BOARD}"
        )
    system = (machine, release.get("ID"), release.get("VERSION_ID"))
    if system != ("x86_64", "debian", DEBIAN_VERSION):
        here = f"{release.get('PRETTY_NAME', 'an unknown system')} on {machine}"
        wanted = f"Debian {DEBIAN_VERSION} on x86_64"
        return f"{name} can be set up on {wanted} only, not on {here}; {USE_A_BOARD}"
    if missing:
        return (
            f"{name} cannot be set up without {', '.join(missing)}; install them, or {USE_A_BOARD}"
        )
    return None


def build_sysroot(temporary: Path, say: Say) -> Path:
    """Make a set-up below a temporary folder and check that it works."""
    host, guest, made = temporary / "amd64", temporary / "arm64", temporary / "made"
    version = runtime_version()
    say(f"downloading qemu, Python and onnxruntime {version} for {SYSROOT_NAME}")
    run_commands(
        temporary,
        apt_download(host, INSTALLED.read_bytes(), "qemu-user"),
        apt_download(guest, pretended_status(*UNUSED_PACKAGES), *GUEST_PACKAGES),
        pip_download(guest / "unpacked" / GUEST_SITE, f"onnxruntime=={version}", "numpy"),
    )
    say("unpacking")
    unpack_packages(host, made / "host", QEMU, *HOST_LIBRARIES)
    unpack_packages(guest, made / "guest", INTERPRETER, "lib", "usr/lib")
    prune_guest(made / "guest")
    for name, cpu in CPUS.items():
        write_root(made / name, cpu)
    counter = str(made / "counter.so")
    run_commands(temporary, Command("gcc", ["gcc", *CFLAGS, "-o", counter, str(COUNTER)]))
    say(f"checking {', '.join(CPUS)}")
    first, *others = CPUS
    for cpus in ([first], others):
        check_emulation(Sysroot(made), temporary, version, *cpus)
    write_manifest(made)
    return made


def write_root(folder: Path, cpu: EmulatedCpu) -> None:
    """Make the root folder of a processor: links to the guest, and the files that differ."""
    for name, text in cpu.files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name in ("lib", "usr"):
        (folder / name).symlink_to(Path("..", "guest", name))


def check_emulation(sysroot: Sysroot, temporary: Path, version: str, *cpus: str) -> None:
    """Import onnxruntime on each processor, which leaves its bytecode, and count instructions."""
    commands = []
    for cpu in cpus:
        arguments, environment = sysroot.command(cpu, ["-c", EMULATION_CHECK], temporary / cpu)
        del environment["PYTHONDONTWRITEBYTECODE"]
        commands.append(Command(f"the emulated {cpu}", arguments, environment))
    for cpu, said in zip(cpus, run_commands(temporary, *commands), strict=True):
        if said.strip() != version or len(read_counts(temporary / cpu)) != 1:
            raise TargetError(f"{SYSROOT_NAME} cannot be set up: the emulated {cpu} does not count")
