"""An AArch64 Linux in the cache folder: qemu, a Debian with Python, onnxruntime, and a counter.

    arm64/manifest.json        what it was made from, and every file of it
    arm64/counter.so           counter.c, which counts instructions between markers
    arm64/host                 qemu-aarch64 and the libraries that this machine lacks for it
    arm64/guest                Python, numpy and onnxruntime for AArch64
    arm64/cortex-a53 …         links to guest, and what /proc and /sys say on that processor

Nothing is installed: apt downloads packages with a configuration that knows only folders of ours,
and they are unpacked there. All of it is made beside its place and renamed when it has proved to
work, so that it is there as a whole or not at all. `qemu -L` looks a path up in the processor's
folder first, and on this machine if it is not there.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxfde.errors import TargetError

Say = Callable[[str], None]

NAME = "arm64"
RECIPE = 1
MANIFEST = "manifest.json"
COUNTER = Path(__file__).with_name("counter.c")
MARKER = 0x0FDE0FDE  # above every process id
DEBIAN, PYTHON, GLIBC = "12", "3.11", 36  # the versions that come with this Debian
SSH = "measure on a board with --target ssh://user@host"

INSTALLED = Path("/var/lib/dpkg/status")
TOOLS = ("apt-get", "dpkg", "gcc")
CFLAGS = ("-shared", "-fPIC", "-O2", "-Wall", "-Werror")
GUEST_PACKAGES = ("python3-minimal", "libpython3-stdlib", "libstdc++6")
UNUSED_PACKAGES = (
    "dpkg", "libdb5.3", "libncursesw6", "libnsl2", "libreadline8", "libsqlite3-0", "libtirpc3",
    "media-types",
)  # fmt: skip
QEMU = "usr/bin/qemu-aarch64"
HOST_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")
INTERPRETER = f"usr/bin/python{PYTHON}"
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
PIP_OPTIONS = (
    "--quiet", "--no-input", "--no-cache-dir", "--no-compile", "--disable-pip-version-check",
    "--only-binary=:all:", "--implementation=cp", f"--python-version={PYTHON}",
)  # fmt: skip
GUEST_ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "OPENBLAS_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONNOUSERSITE": "1",
    "PYTHONSAFEPATH": "1",
}
CHECK = f"""
import argparse, base64, hashlib, json, os, platform, subprocess, tempfile, threading
import numpy, onnxruntime
print(onnxruntime.__version__)
try:
    os.getpgid({MARKER})
except ProcessLookupError:
    pass
"""


@dataclass(frozen=True)
class Cpu:
    """What Linux says about a processor with one core; it must agree with what qemu emulates."""

    part: str
    variant: str
    revision: str
    cache: str
    features: str

    def files(self) -> dict[str, str]:
        """What a guest would otherwise read about this machine's processor and libraries."""
        cpus = "sys/devices/system/cpu"
        facts = (
            ("processor\t", "0"),
            ("Features\t", self.features),
            ("CPU implementer\t", "0x41"),
            ("CPU architecture", "8"),
            ("CPU variant\t", self.variant),
            ("CPU part\t", self.part),
            ("CPU revision\t", self.revision),
        )
        return {
            "etc/ld.so.cache": "",
            "proc/cpuinfo": "".join(f"{name}: {value}\n" for name, value in facts),
            **{f"{cpus}/{name}": "0\n" for name in ("kernel_max", "online", "possible", "present")},
            f"{cpus}/cpu0/topology/physical_package_id": "0\n",
            f"{cpus}/cpu0/topology/cluster_cpus_list": "0\n",
            f"{cpus}/cpu0/topology/core_siblings_list": "0\n",
            f"{cpus}/cpu0/cache/index2/level": "2\n",
            f"{cpus}/cpu0/cache/index2/size": f"{self.cache}\n",
            f"{cpus}/cpu0/cache/index2/shared_cpu_list": "0\n",
        }


ARMV8 = "fp asimd aes pmull sha1 sha2 crc32 cpuid"
ARMV82 = f"{ARMV8} atomics fphp asimdhp asimdrdm lrcpc dcpop asimddp"
CPUS = {
    "cortex-a53": Cpu("0xd03", "0x0", "4", "512K", ARMV8),
    "cortex-a72": Cpu("0xd08", "0x0", "3", "1024K", ARMV8),
    "cortex-a76": Cpu("0xd0b", "0x4", "1", "512K", ARMV82),
}


@dataclass(frozen=True)
class Sysroot:
    """A set-up that is ready."""

    folder: Path

    def command(
        self, cpu: str, arguments: Sequence[str], log: Path | None = None
    ) -> tuple[list[str], dict[str, str]]:
        """Arguments and environment that run the guest's Python; `log` is where counts go."""
        if cpu not in CPUS:
            raise TargetError(f"there is no emulated '{cpu}'; there are {', '.join(CPUS)}")
        host = self.folder / "host"
        options = ["-cpu", cpu, "-L", str(self.folder / cpu), "-seed", "1", "-U", "LD_LIBRARY_PATH"]
        if log is not None:
            files = (self.folder / "counter.so", log.absolute())
            plugin, out = (str(file).replace(",", ",,") for file in files)
            options += ["-plugin", f"file={plugin},out={out}"]
        libraries = ":".join(str(host / name) for name in HOST_LIBRARIES)
        return (
            [str(host / QEMU), *options, str(self.folder / "guest" / INTERPRETER), *arguments],
            {**GUEST_ENVIRONMENT, "LD_LIBRARY_PATH": libraries},
        )


def read_counts(log: Path) -> list[tuple[int, int]]:
    """Total and SIMD instructions up to each marker, as the counter wrote them."""
    try:
        rows = [line.split() for line in log.read_text().splitlines()]
        return [(int(total), int(simd)) for total, simd in rows]
    except (OSError, ValueError) as error:
        raise TargetError(f"{log} holds no counts of instructions ({error})") from None


def cache_folder() -> Path:
    """Where set-ups are kept."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "onnxfde"
    home = os.path.expanduser("~")
    if not os.path.isabs(home):
        raise TargetError("there is no home folder; set XDG_CACHE_HOME to a folder for caches")
    return Path(home) / ".cache" / "onnxfde"


def find() -> Sysroot:
    """The set-up, if it is ready and complete."""
    folder = cache_folder() / NAME
    problem = deviation(folder)
    if problem is not None:
        raise TargetError(f"{NAME} {problem}; run: onnxfde target setup {NAME}")
    return Sysroot(folder)


def deviation(folder: Path) -> str | None:
    """What is wrong with a set-up: it is missing, made from something else, or not as it was."""
    if not os.path.isdir(folder):
        return "is not set up"
    try:
        noted = json.loads((folder / MANIFEST).read_text())
        made_from, files = dict(noted["made from"]), dict(noted["files"])
        changed = differences(made_from, ingredients())
        damaged = differences(files, inventory(folder))
    except (OSError, ValueError, TypeError, KeyError):
        return f"is damaged ({MANIFEST})"
    if changed:
        return f"is outdated ({changed[0]} has changed)"
    return f"is damaged ({damaged[0]})" if damaged else None


def write_manifest(folder: Path) -> None:
    """Note what a set-up was made from and what it consists of."""
    noted = {"made from": ingredients(), "files": inventory(folder)}
    (folder / MANIFEST).write_text(json.dumps(noted, indent=0))


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The keys under which two mappings do not hold the same, in order."""
    return sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))


def ingredients() -> dict[str, Any]:
    """What a set-up is made from."""
    source = hashlib.sha256(COUNTER.read_bytes()).hexdigest()
    return {"recipe": RECIPE, "onnxruntime": runtime_version(), COUNTER.name: source}


def inventory(folder: Path) -> dict[str, Any]:
    """Every file below a folder: size, time and mode, or where a link leads."""
    found: dict[str, Any] = {}
    for place, folders, names in os.walk(folder):
        for path in (os.path.join(place, name) for name in (*folders, *names)):
            status = os.lstat(path)
            if not stat.S_ISDIR(status.st_mode):
                facts = [status.st_size, status.st_mtime_ns, status.st_mode]
                link = stat.S_ISLNK(status.st_mode)
                found[os.path.relpath(path, folder)] = os.readlink(path) if link else facts
    found.pop(MANIFEST, None)
    return found


def runtime_version() -> str:
    """The version of this machine's onnxruntime, without loading it."""
    try:
        return importlib.metadata.version("onnxruntime")
    except importlib.metadata.PackageNotFoundError:
        raise TargetError("onnxruntime is not installed; run: pip install onnxruntime") from None


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
