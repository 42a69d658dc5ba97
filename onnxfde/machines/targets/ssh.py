"""A board over ssh: one connection that carries everything there and a line of JSON back.

The remote shell unpacks into a temporary folder and removes it when it ends. It ends when the
connection does: the runner stops as soon as its standard input is closed.
"""

from __future__ import annotations

import io
import os
import shlex
import tarfile
import tempfile
from dataclasses import dataclass
from typing import IO
from urllib.parse import unquote, urlsplit

from onnxfde.errors import TargetError, UsageError
from onnxfde.machines.targets.base import RUNNER, Job, Measured, Say, answers_in, measured
from onnxfde.machines.targets.process import Finished, attended

COMMAND = "ONNXFDE_SSH"
"""The variable that replaces the command `ssh`, options included."""
CONNECT_SECONDS = 10
OPTIONS = {
    "BatchMode": "yes",
    "ConnectTimeout": str(CONNECT_SECONDS),
    "ServerAliveInterval": "15",
    "ClearAllForwardings": "yes",
}
NO_FOLDER, NO_PYTHON, NOT_UNPACKED, NOT_CONNECTED = 95, 96, 97, 255
SCRIPT = (
    "command -v {python} >/dev/null 2>&1 || exit {NO_PYTHON}; "
    'd=$(mktemp -d "${{TMPDIR:-/tmp}}/onnxfde.XXXXXX") || exit {NO_FOLDER}; '
    "trap 'rm -rf \"$d\"' EXIT; trap 'exit 143' HUP INT TERM PIPE; "
    'head -c {size} | tar xf - -C "$d" || exit {NOT_UNPACKED}; '
    '{python} "$d/runner.py" --watch "$d/request.json"'
)


@dataclass(frozen=True)
class Ssh:
    """A machine that the user can reach with ssh, and the Python there."""

    name: str
    host: str
    port: int | None
    python: str
    is_here: bool = False

    def measure(self, job: Job, say: Say) -> Measured:
        """Send the job, wait, and read the answer."""
        say(f"{self.name}: {len(job.cases)} models in turns")
        with tempfile.TemporaryFile() as payload:
            pack(job, payload)
            command = self.command(payload.tell())
            payload.seek(0)
            try:
                done = attended(command, payload, timeout=job.timeout)
            except OSError as error:
                reason = f"'{command[0]}' cannot be started ({error.strerror})"
                raise TargetError(f"{self.name}: {reason}; install ssh, or set {COMMAND}") from None
        answers = answers_in(done.out)
        if not answers:
            raise TargetError(f"{self.name}: {self.explained(done)}")
        return measured(answers[0], self.name)

    def command(self, size: int) -> list[str]:
        """The ssh command for a payload of this many bytes."""
        script = SCRIPT.format(
            python=shlex.quote(self.python),
            size=size,
            NO_FOLDER=NO_FOLDER,
            NO_PYTHON=NO_PYTHON,
            NOT_UNPACKED=NOT_UNPACKED,
        )
        options = [f"-o{name}={value}" for name, value in OPTIONS.items()]
        port = [] if self.port is None else ["-p", str(self.port)]
        return [*ssh_command(), *options, *port, "--", self.host, f"sh -c {shlex.quote(script)}"]

    def explained(self, done: Finished) -> str:
        """What went wrong, and what to do about it."""
        known = {
            NO_FOLDER: "no temporary folder can be made there",
            NO_PYTHON: f"there is no {self.python} there; install it, or give its path: "
            f"ssh://{self.address}/path/to/python3",
            NOT_UNPACKED: f"the files could not be unpacked there ({done.reason})",
            NOT_CONNECTED: f"{done.reason}; see that this works first: {self.check}",
        }
        silent = f"{self.python} gave no answer ({done.reason}); is it Python 3.9 or newer?"
        return done.reason if done.expired is not None else known.get(done.code, silent)

    @property
    def address(self) -> str:
        """Host and port."""
        return self.host if self.port is None else f"{self.host}:{self.port}"

    @property
    def check(self) -> str:
        """A command that shows whether the machine can be reached."""
        port = [] if self.port is None else ["-p", str(self.port)]
        return shlex.join([*ssh_command(), "-oBatchMode=yes", *port, self.host, "true"])


def ssh_command() -> list[str]:
    """`ssh`, or what the user puts in its place."""
    text = os.environ.get(COMMAND) or "ssh"
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{COMMAND}={text}: {error}") from None


def pack(job: Job, stream: IO[bytes]) -> None:
    """The runner, the request, the inputs and the models, with the weights they keep outside."""
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


def parse(text: str) -> Ssh:
    """`ssh://user@host:port/path/to/python`; all but the host may be left out."""
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
    return Ssh(text, host, port, parts.path if parts.path.strip("/") else "python3")
