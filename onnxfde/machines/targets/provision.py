"""Making the AArch64 Linux of `sysroot` in the cache folder, without root.

Nothing is installed: apt downloads packages with a configuration that knows only folders of ours,
and they are unpacked there. All of it is made beside its place and renamed when it has proved to
work, so that it is there as a whole or not at all.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxfde.errors import TargetError
from onnxfde.machines.targets.sysroot import (
    COUNTER,
    CPUS,
    HOST_LIBRARIES,
    INTERPRETER,
    MARKER,
    NAME,
    PYTHON,
    QEMU,
    Cpu,
    Sysroot,
    cache_folder,
    deviation,
    read_counts,
    runtime_version,
    write_manifest,
)

Say = Callable[[str], None]

DEBIAN, GLIBC = "12", 36  # the versions that come with Python 3.11
SSH = "measure on a board with --target ssh://user@host"
INSTALLED = Path("/var/lib/dpkg/status")
TOOLS = ("apt-get", "dpkg", "gcc")
CFLAGS = ("-shared", "-fPIC", "-O2", "-Wall", "-Werror")
GUEST_PACKAGES = ("python3-minimal", "libpython3-stdlib", "libstdc++6")
UNUSED_PACKAGES = (
    "dpkg", "libdb5.3", "libncursesw6", "libnsl2", "libreadline8", "libsqlite3-0", "libtirpc3",
    "media-types",
)  # fmt: skip
SITE = "usr/lib/python3/dist-packages"
UNUSED_FILES = ("usr/lib/*/gconv", f"{SITE}/**/tests")
# Read after this machine's configuration, whose hooks it clears.
APT = """\
#clear APT::Architectures;
#clear APT::Update;
#clear DPkg;
APT::Architecture "{arch}";
APT::Architectures {{ "{arch}"; }};
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
Dir::Cache::pkgcache "pkgcache.bin";
"""
DOWNLOAD = """
apt-get -qq -c "$0" update
exec apt-get -qq -c "$0" install --download-only --reinstall "$@"
"""
CHECK = f"""
import argparse, base64, hashlib, json, os, platform, subprocess, tempfile, threading
import numpy, onnxruntime
print(onnxruntime.__version__)
try:
    os.getpgid({MARKER})
except ProcessLookupError:
    pass
"""
PIP_OPTIONS = (
    "--quiet", "--no-input", "--no-cache-dir", "--no-compile", "--disable-pip-version-check",
    "--only-binary=:all:", "--implementation=cp", f"--python-version={PYTHON}",
)  # fmt: skip


def silent(_: str) -> None:
    """Say nothing."""


def setup(say: Say = silent, force: bool = False) -> bool:
    """Make the set-up unless it is ready; whether there was anything to do."""
    cache = cache_folder()
    target = cache / NAME
    if not force and deviation(target) is None:
        return False
    require()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with locked(cache, say):
            for stale in cache.glob(f"{NAME}-*"):
                shutil.rmtree(stale)
            if not force and deviation(target) is None:
                return False
            with tempfile.TemporaryDirectory(prefix=f"{NAME}-", dir=cache) as temporary:
                replace(target, build(Path(temporary), say), Path(temporary) / "before")
    except OSError as error:
        raise TargetError(
            f"{NAME} cannot be set up in {cache} ({error.strerror or error}); "
            "set XDG_CACHE_HOME to another folder"
        ) from None
    return True


def replace(target: Path, made: Path, before: Path) -> None:
    """Put a new set-up in its place, and what was there before out of the way."""
    if os.path.lexists(target):
        target.rename(before)
    made.rename(target)


@contextlib.contextmanager
def locked(folder: Path, say: Say) -> Iterator[None]:
    """Be the only one; child processes inherit the lock, so that orphans are waited for as well."""
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


def require() -> None:
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
    """Why a machine cannot have the set-up, and what to do instead."""
    if machine in ("aarch64", "arm64"):
        return f"{NAME} is not emulated here: this machine is ARM, use --target cpu, or {SSH}"
    if (machine, release.get("ID"), release.get("VERSION_ID")) != ("x86_64", "debian", DEBIAN):
        here = f"{release.get('PRETTY_NAME', 'an unknown system')} on {machine}"
        return f"{NAME} can be set up on Debian {DEBIAN} on x86_64 only, not on {here}; {SSH}"
    if missing:
        return f"{NAME} cannot be set up without {', '.join(missing)}; install them, or {SSH}"
    return None


def build(temporary: Path, say: Say) -> Path:
    """Make a set-up below a temporary folder and prove that it works."""
    host, guest, made = temporary / "amd64", temporary / "arm64", temporary / "made"
    version = runtime_version()
    say(f"downloading qemu, Python and onnxruntime {version} for {NAME}")
    run_all(
        temporary,
        apt(host, INSTALLED.read_bytes(), "qemu-user"),
        apt(guest, pretended(*UNUSED_PACKAGES), *GUEST_PACKAGES),
        pip(guest / "unpacked" / SITE, f"onnxruntime=={version}", "numpy"),
    )
    say("unpacking")
    unpack(host, made / "host", QEMU, *HOST_LIBRARIES)
    unpack(guest, made / "guest", INTERPRETER, "lib", "usr/lib")
    prune(made / "guest")
    for name, cpu in CPUS.items():
        write_root(made / name, cpu)
    counter = str(made / "counter.so")
    run_all(temporary, Command("gcc", ["gcc", *CFLAGS, "-o", counter, str(COUNTER)]))
    say(f"checking {', '.join(CPUS)}")
    first, *others = CPUS
    for cpus in ([first], others):
        check(Sysroot(made), temporary, version, *cpus)
    write_manifest(made)
    return made


def apt(folder: Path, status: bytes, *packages: str) -> Command:
    """Download packages, and what they need beyond those in a dpkg status, below `folder`."""
    for name in ("state", "cache", "unpacked"):
        (folder / name).mkdir(parents=True)
    (folder / "status").write_bytes(status)
    config = folder / "apt.conf"
    config.write_text(APT.format(arch=folder.name, folder=folder))
    return Command("apt-get", ["sh", "-c", DOWNLOAD, str(config), *packages])


def pretended(*packages: str) -> bytes:
    """A dpkg status in which packages are installed that would be downloaded for nothing."""
    entry = "Package: {}\nStatus: install ok installed\nArchitecture: arm64\nVersion: 9999\n"
    return "\n".join(map(entry.format, packages)).encode()


def pip(target: Path, *wheels: str) -> Command:
    """Download wheels for the guest."""
    tags = [*(f"manylinux_2_{minor}" for minor in range(GLIBC, 16, -1)), "manylinux2014"]
    platforms = [f"--platform={tag}_aarch64" for tag in tags]
    command = [sys.executable, "-m", "pip", "install", *PIP_OPTIONS, *platforms]
    return Command("pip", [*command, "--target", str(target), *wheels])


def unpack(folder: Path, target: Path, *wanted: str) -> None:
    """Unpack downloaded packages and take over what is wanted of them."""
    unpacked = folder / "unpacked"
    for package in sorted((folder / "cache" / "archives").glob("*.deb")):
        run_all(folder, Command("dpkg", ["dpkg", "-x", str(package), str(unpacked)]))
    for name in wanted:
        if (unpacked / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (unpacked / name).rename(target / name)


def prune(guest: Path) -> None:
    """Delete what the guest never reads, and links that would lead out of it."""
    for pattern in UNUSED_FILES:
        for found in list(guest.glob(pattern)):
            shutil.rmtree(found)
    for path in list(guest.rglob("*")):
        if path.is_symlink() and os.path.isabs(os.readlink(path)):
            path.unlink()


def write_root(folder: Path, cpu: Cpu) -> None:
    """A root folder for one processor: links to the guest, and the files that differ."""
    for name, text in cpu.files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name in ("lib", "usr"):
        (folder / name).symlink_to(Path("..", "guest", name))


def check(sysroot: Sysroot, temporary: Path, version: str, *cpus: str) -> None:
    """Import onnxruntime, which leaves bytecode for the next time, and count instructions."""
    commands = []
    for cpu in cpus:
        arguments, environment = sysroot.command(cpu, ["-c", CHECK], temporary / cpu)
        del environment["PYTHONDONTWRITEBYTECODE"]
        commands.append(Command(f"the emulated {cpu}", arguments, environment))
    for cpu, said in zip(cpus, run_all(temporary, *commands), strict=True):
        if said.strip() != version or len(read_counts(temporary / cpu)) != 1:
            raise TargetError(f"{NAME} cannot be set up: the emulated {cpu} does not count")


@dataclass(frozen=True)
class Command:
    """A command, what to call it in a message, and its environment if it is not to be ours."""

    label: str
    arguments: Sequence[str]
    environment: Mapping[str, str] | None = None


def run_all(temporary: Path, *commands: Command) -> list[str]:
    """Run commands side by side and return what they print; none of them outlives this call."""
    started: list[subprocess.Popen[str]] = []
    try:
        started.extend(start(command, temporary) for command in commands)
        outcomes = [process.communicate() for process in started]
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
    for command, process, (_, err) in zip(commands, started, outcomes, strict=True):
        if process.returncode:
            reason = complaint(err) or f"exit code {process.returncode}"
            raise TargetError(
                f"{NAME} cannot be set up: {command.label} failed ({reason}); try again, or {SSH}"
            )
    return [out for out, _ in outcomes]


def start(command: Command, temporary: Path) -> subprocess.Popen[str]:
    """Start a command in a process group of its own, with the lock as all it inherits."""
    ours = {**os.environ, "LC_ALL": "C", "PIP_USER": "0", "TMPDIR": str(temporary)}
    return subprocess.Popen(
        command.arguments,
        env=ours if command.environment is None else command.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        close_fds=False,
        process_group=0,
    )


def complaint(text: str) -> str:
    """The line of an error output that says most: what could not be fetched, or the last error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    unreachable = [line for line in lines if "Failed to fetch" in line][:1]
    errors = [line for line in lines if line.startswith(("E: ", "ERROR: "))]
    return (unreachable or errors[-1:] or lines[-1:] or [""])[0]
