"""Debian packages and Python wheels, downloaded and unpacked below a folder without root.

apt runs with a configuration that knows only that folder, so nothing is installed on this machine.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from onnxfde.machines.targets.build_commands import Command, run_commands
from onnxfde.machines.targets.sysroot import GUEST_PYTHON

NEWEST_GLIBC, OLDEST_GLIBC = 36, 17
"""Minor versions of glibc 2.x: Debian 12 has 2.36, and manylinux2014 stands for 2.17 (PEP 599)."""
GUEST_PACKAGES = ("python3-minimal", "libpython3-stdlib", "libstdc++6")
UNUSED_PACKAGES = (
    "dpkg", "libdb5.3", "libncursesw6", "libnsl2", "libreadline8", "libsqlite3-0", "libtirpc3",
    "media-types",
)  # fmt: skip
"""Dependencies of Python that onnxruntime does not need."""
GUEST_SITE = "usr/lib/python3/dist-packages"
UNUSED_FILES = ("usr/lib/*/gconv", f"{GUEST_SITE}/**/tests")
# apt reads this after the configuration of this machine, whose hooks it clears.
APT_CONFIGURATION = """\
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
APT_DOWNLOAD = """
apt-get -qq -c "$0" update
exec apt-get -qq -c "$0" install --download-only --reinstall "$@"
"""
PIP_OPTIONS = (
    "--quiet", "--no-input", "--no-cache-dir", "--no-compile", "--disable-pip-version-check",
    "--only-binary=:all:", "--implementation=cp", f"--python-version={GUEST_PYTHON}",
)  # fmt: skip


def apt_download(folder: Path, status: bytes, *packages: str) -> Command:
    """Download packages below `folder`, and those they need that a dpkg status does not list.

    The name of the folder is the architecture.
    """
    for name in ("state", "cache", "unpacked"):
        (folder / name).mkdir(parents=True)
    (folder / "status").write_bytes(status)
    config = folder / "apt.conf"
    config.write_text(APT_CONFIGURATION.format(arch=folder.name, folder=folder))
    return Command("apt-get", ["sh", "-c", APT_DOWNLOAD, str(config), *packages])


def pretended_status(*packages: str) -> bytes:
    """A dpkg status that lists packages as installed, so that apt does not download them."""
    entry = "Package: {}\nStatus: install ok installed\nArchitecture: arm64\nVersion: 9999\n"
    return "\n".join(map(entry.format, packages)).encode()


def pip_download(target: Path, *wheels: str) -> Command:
    """Download wheels for the guest and unpack them into a folder."""
    minors = range(NEWEST_GLIBC, OLDEST_GLIBC - 1, -1)
    tags = [*(f"manylinux_2_{minor}" for minor in minors), "manylinux2014"]
    platforms = [f"--platform={tag}_aarch64" for tag in tags]
    command = [sys.executable, "-m", "pip", "install", *PIP_OPTIONS, *platforms]
    return Command("pip", [*command, "--target", str(target), *wheels])


def unpack_packages(folder: Path, target: Path, *wanted: str) -> None:
    """Unpack downloaded packages and move the wanted paths to `target`."""
    unpacked = folder / "unpacked"
    for package in sorted((folder / "cache" / "archives").glob("*.deb")):
        run_commands(folder, Command("dpkg", ["dpkg", "-x", str(package), str(unpacked)]))
    for name in wanted:
        if (unpacked / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (unpacked / name).rename(target / name)


def prune_guest(guest: Path) -> None:
    """Delete files that the guest never reads, and absolute links, which lead out of it."""
    for pattern in UNUSED_FILES:
        for found in list(guest.glob(pattern)):
            shutil.rmtree(found)
    for path in list(guest.rglob("*")):
        if path.is_symlink() and os.path.isabs(os.readlink(path)):
            path.unlink()
