"""What runs on the hosts: servers and directories with their keepers, and callers."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .hosts import Host

CALLER = Path(__file__).with_name("caller.py")
START_SECONDS = 90.0
_POLL_SECONDS = 0.02
_KEEPER = """
while :; do
    setpriv --pdeathsig KILL -- {command} 2>> {log} &
    echo $! > {pid}.new; mv {pid}.new {pid}
    wait $!
done
"""
"""What a keeper does: it starts its process, and starts it again whenever it ends."""


@dataclass
class Kept:
    """A process and the keeper that starts it again."""

    name: str
    host: Host
    port: int
    command: Sequence[str]
    folder: Path
    keeper: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.host.address}:{self.port}"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def ready(self) -> Path:
        return self.folder / f"{self.name}.ready"

    @property
    def pid(self) -> int:
        return int((self.folder / f"{self.name}.pid").read_text())

    def start(self) -> None:
        """Starts the keeper."""
        texts = {
            "command": shlex.join(self.command),
            "log": shlex.quote(str(self.log)),
            "pid": shlex.quote(str(self.folder / f"{self.name}.pid")),
        }
        command = self.host.command("sh", "-c", _KEEPER.format(**texts))
        with self.log.open("ab") as log:
            self.keeper = subprocess.Popen(command, stderr=log)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Sends the process a signal; its keeper starts it again."""
        self.ready.unlink(missing_ok=True)
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill_keeper(self) -> None:
        """Kills the keeper, and the process dies with it. Another keeper comes, as of systemd."""
        self.ready.unlink(missing_ok=True)
        self.stop()
        self.start()

    def wait(self) -> None:
        """Until it answers."""
        end = time.monotonic() + START_SECONDS
        while not self.ready.exists():
            if time.monotonic() > end:
                raise AssertionError(f"{self.name} did not start: {self.log.read_text()[-2000:]}")
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """Kills keeper and process."""
        if self.keeper is not None:
            self.keeper.kill()
            self.keeper.wait()
            with suppress(ProcessLookupError, FileNotFoundError):
                os.kill(self.pid, signal.SIGKILL)  # who changed its user outlives its parent


def server(host: Host, port: int, folder: Path, *flags: str) -> Kept:
    """A CPU server of a host."""
    return _kept("npucall_server", host, port, folder, *flags)


def directory(host: Host, port: int, folder: Path, *flags: str) -> Kept:
    """A directory of a host."""
    return _kept("npucall_server.directory.command", host, port, folder, *flags)


def _kept(module: str, host: Host, port: int, folder: Path, *flags: str) -> Kept:
    kept = Kept(f"{host.name}-{port}", host, port, (), folder)
    kept.command = [
        sys.executable, "-m", module, "--listen", kept.address, "--insecure-bind",
        "--log-calls", "errors", "--ready-file", str(kept.ready), *flags,
    ]  # fmt: skip
    return kept


@contextmanager
def running(every: Sequence[Kept]) -> Iterator[None]:
    """Starts them, waits until all answer, ends them."""
    with ExitStack() as stack:
        for each in every:
            stack.callback(each.stop)
            each.start()
        for each in every:
            each.wait()
        yield


@dataclass(frozen=True)
class Figures:
    """What callers saw."""

    right: int
    wrong: int
    errors: list[str]
    slowest: float
    """Seconds of the slowest call."""
    by_server: dict[str, float]
    """Answers by the instance that gave them, a call of 1 MiB counting as one more."""
    fewest: int
    """Calls of the caller who had the fewest."""

    def __str__(self) -> str:
        return (
            f"{self.right} right, {self.wrong} wrong, {len(self.errors)} errors, slowest "
            f"{self.slowest:.2f} s, fewest of a caller {self.fewest}"
        )

    def check(self) -> None:
        """Every call was answered, rightly."""
        print(self)
        assert self.errors == []
        assert self.wrong == 0
        assert self.right > 0
        assert self.fewest > 0


class Callers:
    """Threads of one client that call without end, and compare each answer bit by bit."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def stop(self) -> Figures:
        """Lets the calls under way end. Answers what was seen."""
        told, _ = self._process.communicate("stop\n", timeout=150)
        found: dict[str, Any] = json.loads(told.splitlines()[-1])
        return Figures(**found)


@contextmanager
def calling(host: Host, target: str, *flags: str, prefix: Sequence[str] = ()) -> Iterator[Callers]:
    """Callers of a host, from their first answer on."""
    command = host.command(*prefix, sys.executable, str(CALLER), target, *flags)
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "calls\n"
            yield Callers(process)
        finally:
            process.kill()
