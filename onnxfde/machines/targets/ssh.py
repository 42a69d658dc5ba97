"""A board over ssh: one connection carries everything there and one line of JSON back.

The remote shell unpacks everything into a temporary folder and removes the folder when it ends. If
the connection breaks, the runner's standard input is closed; then the runner ends, and so does the
shell.
"""

from __future__ import annotations

import io
import os
import shlex
import tarfile
import tempfile
from dataclasses import dataclass
from typing import IO, Self
from urllib.parse import unquote, urlsplit

from onnxfde.errors import TargetError, UsageError
from onnxfde.machines.targets.base import RUNNER, Job, MeasuredJob, Say, answers_in, timed_job
from onnxfde.machines.targets.process import Finished, attended

SSH_VARIABLE = "ONNXFDE_SSH"
"""The environment variable that replaces the command `ssh`; it may include options."""
CONNECT_SECONDS = 10
"""How long to wait for a connection; chosen for a board on the local network, not tuned."""
ALIVE_SECONDS = 15
"""Seconds between signs of life; ssh gives up after three without a reply. Chosen, not tuned."""
SSH_OPTIONS = {
    "BatchMode": "yes",
    "ConnectTimeout": str(CONNECT_SECONDS),
    "ServerAliveInterval": str(ALIVE_SECONDS),
    "ClearAllForwardings": "yes",
}
NO_FOLDER, NO_PYTHON, NOT_UNPACKED = 95, 96, 97
"""Exit codes of `REMOTE_SCRIPT`; chosen among those that neither the shell nor Python uses."""
NOT_CONNECTED = 255
"""The exit code of ssh itself when there is no connection (man ssh)."""
REMOTE_SCRIPT = (
    "command -v {python} >/dev/null 2>&1 || exit {NO_PYTHON}; "
    'd=$(mktemp -d "${{TMPDIR:-/tmp}}/onnxfde.XXXXXX") || exit {NO_FOLDER}; '
    "trap 'rm -rf \"$d\"' EXIT; trap 'exit 143' HUP INT TERM PIPE; "
    'head -c {size} | tar xf - -C "$d" || exit {NOT_UNPACKED}; '
    '{python} "$d/runner.py" --watch "$d/request.json"'
)


@dataclass(frozen=True)
class Ssh:
    """A machine that the user can reach with ssh, and the Python interpreter to use there."""

    name: str
    host: str
    port: int | None
    python: str
    is_here: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `ssh://user@host:port/path/to/python`; all but the host may be left out."""
        wrong = UsageError(f"--target {text}: write ssh://user@host or ssh://user@host:port")
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            raise wrong from None
        if parts.password is not None:
            raise UsageError("--target ssh://: no password in the address; use a key or an agent")
        if not parts.hostname or parts.query or parts.fragment:
            raise wrong
        user = "" if parts.username is None else f"{unquote(parts.username)}@"
        host = f"{user}{parts.netloc.rpartition('@')[2].partition(':')[0]}"
        if parts.hostname.count(":"):
            host = f"{user}{parts.hostname}"
        if host.startswith("-"):
            raise wrong
        return cls(text, host, port, parts.path if parts.path.strip("/") else "python3")

    def measure(self, job: Job, say: Say) -> MeasuredJob:
        """Send the job, wait for the answer and read it."""
        say(f"{self.name}: {len(job.cases)} models in turns")
        with tempfile.TemporaryFile() as payload:
            pack_job(job, payload)
            command = self.command(payload.tell())
            payload.seek(0)
            try:
                done = attended(command, payload, timeout=job.timeout)
            except OSError as error:
                reason = f"'{command[0]}' cannot be started ({error.strerror})"
                raise TargetError(
                    f"{self.name}: {reason}; install ssh, or set {SSH_VARIABLE}"
                ) from None
        answers = answers_in(done.out)
        if not answers:
            raise TargetError(f"{self.name}: {self.explained(done)}")
        return timed_job(answers[0], self.name)

    def command(self, size: int) -> list[str]:
        """The ssh command that takes a payload of `size` bytes on its standard input."""
        script = REMOTE_SCRIPT.format(
            python=shlex.quote(self.python),
            size=size,
            NO_FOLDER=NO_FOLDER,
            NO_PYTHON=NO_PYTHON,
            NOT_UNPACKED=NOT_UNPACKED,
        )
        options = [f"-o{name}={value}" for name, value in SSH_OPTIONS.items()]
        port = [] if self.port is None else ["-p", str(self.port)]
        return [*ssh_command(), *options, *port, "--", self.host, f"sh -c {shlex.quote(script)}"]

    def explained(self, done: Finished) -> str:
        """What went wrong, and what to do about it."""
        known = {
            NO_FOLDER: "no temporary folder can be made there",
            NO_PYTHON: f"there is no {self.python} there; install it, or give its path: "
            f"ssh://{self.address}/path/to/python3",
            NOT_UNPACKED: f"the files could not be unpacked there ({done.reason})",
            NOT_CONNECTED: f"{done.reason}; check that this works first: {self.trial_command}",
        }
        silent = f"{self.python} gave no answer ({done.reason}); is it Python 3.9 or newer?"
        return done.reason if done.expired is not None else known.get(done.code, silent)

    @property
    def address(self) -> str:
        """Host and port."""
        return self.host if self.port is None else f"{self.host}:{self.port}"

    @property
    def trial_command(self) -> str:
        """A command with which the user can test the connection."""
        port = [] if self.port is None else ["-p", str(self.port)]
        return shlex.join([*ssh_command(), "-oBatchMode=yes", *port, self.host, "true"])


def ssh_command() -> list[str]:
    """`ssh`, or the command that the user set in its place."""
    text = os.environ.get(SSH_VARIABLE) or "ssh"
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{SSH_VARIABLE}={text}: {error}") from None


def pack_job(job: Job, stream: IO[bytes]) -> None:
    """Write a tar archive of the runner, the request, the inputs, the models and their weights."""
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar:
        tar.add(RUNNER.resolve(), "runner.py")
        for name, content in job.files(folder="models"):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        for i, case in enumerate(job.cases):
            tar.add(case.file.resolve(), f"models/{i}/{case.name}")
            for file in case.outside:
                tar.add(file.resolve(), f"models/{i}/{file.relative_to(case.file.parent)}")
