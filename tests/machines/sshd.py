"""A throw-away ssh server on the loopback, with keys of its own."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from onnxfde.machines.targets.process import end_process
from tests.machines.processes import runners, wait_until

PRIVILEGE_SEPARATION = Path("/run/sshd")


@dataclass(frozen=True)
class Server:
    """Where it listens, how to reach it, and the folder its sessions put temporary files in."""

    port: int
    command: str
    temporary: Path

    def target(self, python: str = "") -> str:
        return f"ssh://{getpass.getuser()}@127.0.0.1:{self.port}{python}"

    def wait_until_clean(self) -> list[str]:
        """What is left in the temporary folder and of the runner, at the latest after a while."""
        wait_until(lambda: not self.left())
        return self.left()

    def left(self) -> list[str]:
        processes = [f"process {pid}" for pid in runners(self.temporary)]
        return processes + [file.name for file in self.temporary.iterdir()]


def why_not() -> str:
    """Why there can be no server here, or nothing."""
    if not (sshd() and shutil.which("ssh") and shutil.which("ssh-keygen")):
        return "openssh-server and openssh-client are not installed"
    if os.geteuid() == 0 and not PRIVILEGE_SEPARATION.is_dir():
        try:
            PRIVILEGE_SEPARATION.mkdir(mode=0o755, parents=True)
        except OSError:
            return f"sshd needs {PRIVILEGE_SEPARATION}, which cannot be made"
    return ""


def sshd() -> str | None:
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Run a server until the end of the block."""
    if reason := why_not():
        pytest.skip(reason)
    for name in ("host", "key", "stranger"):
        keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(keygen, check=True, stdin=subprocess.DEVNULL, timeout=60)
    (folder / "authorized").write_bytes((folder / "key.pub").read_bytes())
    temporary, port = folder / "temporary", free_port()
    temporary.mkdir()
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {folder}/host\nPidFile none\nUsePAM no\n"
        f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nPermitRootLogin yes\n"
        f"PasswordAuthentication no\nSetEnv TMPDIR={temporary}\n"
    )
    host_key = (folder / "host.pub").read_text()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}")
    (folder / "ssh_config").write_text(
        f"UserKnownHostsFile {folder}/known_hosts\nIdentityFile {folder}/key\nIdentitiesOnly yes\n"
        "IdentityAgent none\n"
    )
    log = (folder / "log").open("wb")
    server = subprocess.Popen(
        [str(sshd()), "-D", "-e", "-f", str(folder / "sshd_config")],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )
    try:
        wait_for(port, server, folder / "log")
        yield Server(port, f"ssh -F {folder}/ssh_config", temporary)
    finally:
        end_process(server)
        log.close()


def wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    def answers() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return server.poll() is not None

    if not wait_until(answers) or server.poll() is not None:
        pytest.skip(f"sshd does not start here: {log.read_text(errors='replace').strip()[-200:]}")
