"""What runs on the hosts: servers and directories with their keepers."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .hosts import Host

START_SECONDS = 400.0
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
    """A CPU server of a host. Its socket would be on all hosts, which share a file system."""
    frames = "--frames-socket=off", "--frames-listen=+1000"
    return _kept("npucall_server", host, port, folder, *frames, *flags)


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
