"""A laptop that reaches a login node alone, and a host of NPUs behind that: network namespaces."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LOGIN, HOST = "198.18.1.1", "198.18.2.2"
"""Of the login node as the laptop knows it, and of the host as the login node does."""
_ADDRESSES = (
    # A wire a line: its two ends, each a namespace with its address.
    (("laptop", "198.18.1.2"), ("login", LOGIN)),
    (("login", "198.18.2.1"), ("host", HOST)),
)
_PROGRAMS = "ip", "nsenter", "setpriv"
_PATIENCE, _POLL_SECONDS = 30.0, 0.02


def missing(*programs: str) -> str:
    """What this machine lacks for it, in a sentence; empty if nothing."""
    if not sys.platform.startswith("linux"):
        return "platform: expected Linux, whose network namespaces this needs"
    if os.geteuid() != 0:
        return "user: expected root, who may make network namespaces"
    lacking = [each for each in (*_PROGRAMS, *programs) if shutil.which(each) is None]
    return f"PATH: expected {', '.join(lacking)}, found none" if lacking else ""


class Hosts:
    """The three of them; ``laptop``, ``login`` and ``host`` are names of namespaces."""

    def __init__(self) -> None:
        self._prefix = f"far-{os.getpid()}-"

    def command(self, where: str, *command: str) -> list[str]:
        """A command as it runs there; it is killed when its parent ends."""
        inside = "nsenter", f"--net=/run/netns/{self._prefix}{where}"
        return [*inside, "setpriv", "--pdeathsig", "KILL", "--", *command]

    @contextmanager
    def running(self, where: str, *command: str, ready: Sequence[str | int]) -> Iterator[None]:
        """A program that runs there and listens at ``ready``, an address and a port."""
        with subprocess.Popen(self.command(where, *command), stdout=subprocess.DEVNULL) as process:
            try:
                self._wait_for(where, process, *map(str, ready))
                yield
            finally:
                process.kill()

    def _wait_for(self, where: str, process: subprocess.Popen[bytes], *address: str) -> None:
        probe = self.command(where, sys.executable, __file__, *address)
        ended = subprocess.run(probe, check=False, timeout=_PATIENCE)
        if ended.returncode != 0 or process.poll() is not None:
            raise RuntimeError(f"{process.args!r} does not listen")

    @contextmanager
    def up(self) -> Iterator[None]:
        """Lays the wires, and takes them away again."""
        with ExitStack() as ends:
            for name in ("laptop", "login", "host"):
                _run("ip", "netns", "add", self._prefix + name)
                ends.callback(_run, "ip", "netns", "delete", self._prefix + name)
                _run("ip", "-n", self._prefix + name, "link", "set", "lo", "up")
            for wire in _ADDRESSES:
                self._lay(wire)
            yield

    def _lay(self, wire: Sequence[tuple[str, str]]) -> None:
        (one, _), (other, _) = wire
        peer = f"peer name to-{one} netns {self._prefix}{other}".split()
        _run("ip", "-n", self._prefix + one, "link", "add", f"to-{other}", "type", "veth", *peer)
        for (here, address), there in zip(wire, (other, one), strict=True):
            inside = "ip", "-n", self._prefix + here
            _run(*inside, "address", "add", f"{address}/24", "dev", f"to-{there}")
            _run(*inside, "link", "set", f"to-{there}", "up")


@contextmanager
def far_hosts() -> Iterator[Hosts]:
    hosts = Hosts()
    with hosts.up():
        yield hosts


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def wait_until_somebody_listens(host: str, port: int) -> None:
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            socket.create_connection((host, port), timeout=1).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(_POLL_SECONDS)
        else:
            return


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    """A file that nobody else may read."""
    path.touch(mode=mode)
    path.write_text(text)
    return path


if __name__ == "__main__":
    wait_until_somebody_listens(sys.argv[1], int(sys.argv[2]))
