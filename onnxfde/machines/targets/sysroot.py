"""An AArch64 Linux in the cache folder: qemu, Debian's Python, onnxruntime and a counter.

    arm64/manifest.json        what it was made from, and a list of its files
    arm64/counter.so           compiled counter.c, which counts instructions between markers
    arm64/host                 qemu-aarch64 and those of its libraries that this machine lacks
    arm64/guest                Python, numpy and onnxruntime for AArch64
    arm64/cortex-a53 …         links to guest, and the /proc and /sys of that processor

`provision` makes it. `qemu -L` looks up each path in the processor's folder first, then on this
machine.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxfde.errors import TargetError

SYSROOT_NAME = "arm64"
RECIPE = 1
"""The version of the steps in `provision`; raise it when a set-up must be made again."""
MANIFEST = "manifest.json"
COUNTER = Path(__file__).with_name("counter.c")
MARKER = 0x0FDE0FDE
"""What the guest passes to getpgid to reach the counter; Linux has no process ids above 2²²."""
GUEST_PYTHON = "3.11"
"""The version that Debian 12 has."""

QEMU = "usr/bin/qemu-aarch64"
HOST_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")
INTERPRETER = f"usr/bin/python{GUEST_PYTHON}"
GUEST_ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "OPENBLAS_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONNOUSERSITE": "1",
    "PYTHONSAFEPATH": "1",
}


@dataclass(frozen=True)
class EmulatedCpu:
    """What Linux reports about a processor with one core; it must agree with what qemu emulates."""

    part: str
    variant: str
    revision: str
    cache: str
    features: str

    def files(self) -> dict[str, str]:
        """Files that hide this machine's processor and libraries from the guest."""
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


# Otherwise onnxruntime uses instructions that qemu does not emulate, and the guest dies of SIGILL.
ARMV8 = "fp asimd aes pmull sha1 sha2 crc32 cpuid"
ARMV82 = f"{ARMV8} atomics fphp asimdhp asimdrdm lrcpc dcpop asimddp"
CPUS = {
    "cortex-a53": EmulatedCpu("0xd03", "0x0", "4", "512K", ARMV8),
    "cortex-a72": EmulatedCpu("0xd08", "0x0", "3", "1024K", ARMV8),
    "cortex-a76": EmulatedCpu("0xd0b", "0x4", "1", "512K", ARMV82),
}


@dataclass(frozen=True)
class Sysroot:
    """A complete set-up, which can run programs."""

    folder: Path

    def command(
        self, cpu: str, arguments: Sequence[str], log: Path | None = None
    ) -> tuple[list[str], dict[str, str]]:
        """Command and environment that run the guest's Python; counts are written to `log`."""
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
    """All instructions and SIMD instructions up to each marker, as the counter logged them."""
    try:
        rows = [line.split() for line in log.read_text().splitlines()]
        return [(int(total), int(simd)) for total, simd in rows]
    except (OSError, ValueError) as error:
        raise TargetError(f"{log} holds no counts of instructions ({error})") from None


def cache_folder() -> Path:
    """The folder for the files of onnxfde in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "onnxfde"
    home = os.path.expanduser("~")
    if not os.path.isabs(home):
        raise TargetError("there is no home folder; set XDG_CACHE_HOME to a folder for caches")
    return Path(home) / ".cache" / "onnxfde"


def find_sysroot() -> Sysroot:
    """The set-up; raises TargetError if it is not complete."""
    folder = cache_folder() / SYSROOT_NAME
    problem = deviation(folder)
    if problem is not None:
        raise TargetError(f"{SYSROOT_NAME} {problem}; run: onnxfde target setup {SYSROOT_NAME}")
    return Sysroot(folder)


def deviation(folder: Path) -> str | None:
    """What is wrong with a set-up, if anything: it is missing, outdated or damaged."""
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
    """Record what a set-up was made from and which files it has."""
    noted = {"made from": ingredients(), "files": inventory(folder)}
    (folder / MANIFEST).write_text(json.dumps(noted, indent=0))


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The keys whose values differ between two mappings, sorted."""
    return sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))


def ingredients() -> dict[str, Any]:
    """The versions that a set-up is made from."""
    source = hashlib.sha256(COUNTER.read_bytes()).hexdigest()
    return {"recipe": RECIPE, "onnxruntime": runtime_version(), COUNTER.name: source}


def inventory(folder: Path) -> dict[str, Any]:
    """Size, time and mode of each file below a folder, and the target of each link."""
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
    """The version of onnxruntime that is installed here; it is not imported."""
    try:
        return importlib.metadata.version("onnxruntime")
    except importlib.metadata.PackageNotFoundError:
        raise TargetError("onnxruntime is not installed; run: pip install onnxruntime") from None
