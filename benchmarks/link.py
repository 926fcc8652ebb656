"""A server and its clients far from each other: two network namespaces, ``wire.c`` between them.

Nothing of it is left when the benchmark ends, however it ends: the namespaces have no names and are
gone with the processes in them, the wire ends when its input is closed, and what is started in a
namespace is killed when the benchmark is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SERVER_HOST = "198.18.0.1"
_SOURCE = Path(__file__).with_name("wire.c")
_PROGRAMS = ("cc", "nsenter", "setpriv")
_QUEUE_SECONDS = 0.05
"""How long the queue of the wire is, as a router's is."""
_START_SECONDS, _POLL_SECONDS = 60.0, 0.05


class Ends(NamedTuple):
    """What a command has to begin with to run at an end of the wire."""

    server: tuple[str, ...]
    client: tuple[str, ...]
    wire: int
    """The process that is the wire; while it is stopped, nothing comes through."""
    trips: Callable[[], int]
    """How many packets, each sent after the one before had come, have led to what the client has
    got since the last time: two are a round trip."""


@dataclass(frozen=True)
class Link:
    """A way between two hosts."""

    name: str
    round_trip: float
    """Seconds there and back, of a byte on a wire that is idle."""
    rate: float
    """Bits a second, in each direction."""
    queue_seconds: float = _QUEUE_SECONDS

    @contextmanager
    def up(self) -> Iterator[Ends]:
        """Both ends of such a wire. Needs root; see ``missing``."""
        with tempfile.TemporaryDirectory(prefix="npucall-wire-") as folder:
            program = Path(folder, "wire")
            subprocess.run(["cc", "-O2", "-o", program, _SOURCE], check=True)
            delay, queue = self.round_trip / 2 * 1e6, self.rate / 8 * self.queue_seconds
            command = [program, f"{delay:.0f}", f"{self.rate:.0f}", f"{queue:.0f}"]
            with subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as wire:
                try:
                    yield _ends(wire)
                finally:
                    wire.kill()


def _ends(wire: subprocess.Popen[str]) -> Ends:
    if wire.stdout is None or not (line := wire.stdout.readline()):
        raise RuntimeError("the wire did not start; see what it said above")
    server, client = (_inside(wire.pid, descriptor) for descriptor in line.split())
    return Ends(server, client, wire.pid, partial(_trips, wire))


def _trips(wire: subprocess.Popen[str]) -> int:
    if wire.stdin is None or wire.stdout is None:
        raise RuntimeError("the wire has no pipes")
    wire.stdin.write("\n")
    wire.stdin.flush()
    return int(wire.stdout.readline())


def _inside(pid: int, descriptor: str) -> tuple[str, ...]:
    return ("nsenter", f"--net=/proc/{pid}/fd/{descriptor}", "setpriv", "--pdeathsig", "KILL", "--")


def missing() -> str:
    """Why no wire can be laid here, in a sentence; empty if it can."""
    if not sys.platform.startswith("linux"):
        return "platform: expected Linux, whose network namespaces this needs"
    if os.geteuid() != 0:
        return "user: expected root, who may make network namespaces"
    if not Path("/dev/net/tun").exists():
        return "/dev/net/tun: expected a device, found none"
    lacking = [program for program in _PROGRAMS if shutil.which(program) is None]
    return f"PATH: expected {', '.join(lacking)}, found none" if lacking else ""


class FarServer(NamedTuple):
    """A server at the far end."""

    target: str
    pid: int

    def bytes_on_wire(self) -> int:
        """Bytes of all packets, both directions, with their headers, since the wire is up."""
        for line in Path(f"/proc/{self.pid}/net/dev").read_text().splitlines():
            name, _, counters = line.partition(":")
            if name.strip() == "wire":
                received, sent = (int(counters.split()[column]) for column in (0, 8))
                return received + sent
        raise RuntimeError(f"/proc/{self.pid}/net/dev: expected the interface wire, found none")


@contextmanager
def far_server(ends: Ends, *flags: str) -> Iterator[FarServer]:
    """An ``npucall-server`` at the far end."""
    with tempfile.TemporaryDirectory(prefix="npucall-far-") as folder:
        ready = Path(folder, "ready")
        command = [
            *ends.server, sys.executable, "-m", "npucall_server", "--listen", f"{SERVER_HOST}:0",
            "--insecure-bind", "--log-calls", "errors", "--ready-file", str(ready),
            # Both ends share a file system, where its socket would be a way around the wire.
            "--frames-socket=off", "--frames-listen=+1000", *flags,
        ]  # fmt: skip
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                _wait_for(ready, process)
                yield FarServer(ready.read_text(), process.pid)
            finally:
                process.kill()


def _wait_for(ready: Path, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_SECONDS
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError("the far server did not start")
        time.sleep(_POLL_SECONDS)


def command_at(inside: Sequence[str], script: str, *arguments: str) -> list[str]:
    """A command that runs a script of this folder at an end."""
    return [*inside, sys.executable, str(Path(__file__).with_name(script)), *arguments]
