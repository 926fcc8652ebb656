"""A server that is attacked, and what the attack costs it.

The environment says how (the tests are marked ``long``):

* ``ATTACKED_SERVER``: the command of another server, such as that of an older checkout, for the
  figures of before: ``ATTACKED_SERVER="/older/.venv/bin/python -m npucall_server"``;
* ``ATTACK_FIGURES``: a file to which each test appends its line, ``name: figure``;
* ``SOAK_SECONDS``: how long the soak lasts.

For example: ``ATTACK_FIGURES=after.txt .venv/bin/python -m pytest -m long tests/attacks``.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.end_to_end import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    Start = Callable[..., AbstractContextManager["Attacked"]]
    """``attacked`` in a folder of the test's own."""
    Figure = Callable[[str, object], None]
    """Keeps a figure under a name."""

MIB, GIB = 2**20, 2**30
LIMITS = {"256 MiB": 256 * MIB, "1 GiB": GIB, "4 GiB": 4 * GIB}
_CAP = 6 * GIB
"""Resident bytes at which a server is killed, that other programs of this machine may live."""
_START_SECONDS, _POLL_SECONDS = 30.0, 0.02


@dataclass
class Attacked:
    """A server in a process of its own."""

    target: str
    process: subprocess.Popen[bytes]
    log: Path
    limit: int
    """Its memory_limit."""
    resident_at_start: int
    killed: bool = False
    """It took more than ``cap``, so the harness ended it."""

    @property
    def promise(self) -> int:
        """Resident bytes that the server stays under, whatever callers send."""
        return self.limit * 3 // 2 + 256 * MIB

    @property
    def cap(self) -> int:
        return max(_CAP, self.promise + 128 * MIB)

    def peak(self) -> int:
        """The most resident bytes since ``forget_peak``."""
        return self.cap if self.killed else wire.peak_bytes(self.process.pid)

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))

    def in_flight(self) -> tuple[int, int]:
        """Calls and bytes, as GetServerInfo tells over a connection of its own."""
        with wire.bare_channel(self.target) as channel:
            info = wire.server_info(channel)
        return info.calls_in_flight, info.bytes_in_flight

    def largest_message(self) -> int:
        """Bytes of the largest request that it takes."""
        with wire.bare_channel(self.target) as channel:
            return wire.server_info(channel).limits.max_message_bytes

    def seconds_until_idle(self, most: float) -> float:
        """Until nothing is in flight; infinite if that takes longer than ``most``."""
        start = time.monotonic()
        while (seconds := time.monotonic() - start) < most:
            if self.in_flight() == (0, 0):
                return seconds
            time.sleep(0.5)
        return float("inf")

    def wait(self, seconds: float) -> None:
        """So long, or until the server is no more."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)

    def show_peak(self) -> str:
        sign = "> " if self.killed else ""
        return f"{sign}{self.peak() / MIB:,.0f} MiB (promise {self.promise / MIB:,.0f})"


@contextmanager
def attacked(
    folder: Path,
    *flags: str,
    limit: int = 256 * MIB,
    descriptors: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Attacked]:
    """Starts a server, with so many descriptors at most, and kills it at the end.

    ``environment``: all of its variables; if not given, this process's.
    """
    given = shlex.split(os.environ.get("ATTACKED_SERVER", ""))
    command = given or [sys.executable, "-m", "npucall_server"]
    if descriptors is not None:
        command = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command]
    ready, log = folder / "ready", folder / "log"
    options = [f"--memory-limit={limit}", "--listen=127.0.0.1:0", f"--ready-file={ready}"]
    with log.open("wb") as output:
        process = subprocess.Popen([*command, *options, *flags], stderr=output, env=environment)
    try:
        _wait_for(ready, process, log)
        now = wire.resident_bytes(process.pid)
        server = Attacked(ready.read_text(), process, log, limit, now)
        server.forget_peak()
        with _watched(server):
            yield server
    finally:
        process.kill()
        process.wait()


def _wait_for(ready: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the server did not start: {log.read_text()}")
        time.sleep(_POLL_SECONDS)


@contextmanager
def _watched(server: Attacked) -> Iterator[None]:
    """Kills the server once it is larger than its cap."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_POLL_SECONDS) and server.process.poll() is None:
            if wire.resident_bytes(server.process.pid) > server.cap:
                server.killed = True
                server.process.kill()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
