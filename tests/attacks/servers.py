"""A server that is attacked, and what the attack costs it.

``ATTACKED_SERVER`` is the command of another server, such as that of an older checkout, for the
figures of before: ``ATTACKED_SERVER="/older/.venv/bin/python -m npucall_server"``.
"""

import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.end_to_end import wire

from npucall.v1 import operator_service_pb2 as pb

Start = Callable[..., AbstractContextManager["AttackedServer"]]
"""``attacked`` in a folder of the test's own."""

MIB, GIB = 2**20, 2**30
_CAP = 6 * GIB
"""Resident bytes at which a server is killed, that other programs of this machine may live."""
_POLL_SECONDS = 0.02
_WAITS_FOR_A_TASK = re.compile(
    r"^Thread .*\n +(_worker \(concurrent/futures|Threads\._work \(npucall_server/carriers)/thread",
    re.MULTILINE,
)
"""A thread of a pool, and where it is, as py-spy tells them."""


@dataclass
class AttackedServer:
    """A server in a process of its own. ``limit``: its memory_limit."""

    target: str
    process: subprocess.Popen[bytes]
    log: Path
    limit: int
    resident_at_start: int
    killed: bool = False
    """It took more than ``cap``, so it was ended."""
    notes: list[str] = field(default_factory=list)
    """Figures of the test beside the peak."""

    @property
    def promise(self) -> int:
        """Resident bytes that the server stays under, whatever callers send."""
        return self.limit * 3 // 2 + 256 * MIB

    @property
    def cap(self) -> int:
        return max(_CAP, self.promise + 128 * MIB)

    def peak(self) -> int:
        """The most resident bytes since the start; of a server that has ended 0."""
        if self.killed or self.process.poll() is not None:
            return self.cap if self.killed else 0
        return wire.peak_bytes(self.process.pid)

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))

    def waiting_threads(self) -> int:
        """Those that wait for a task in their pool, which keeps as many as it once needed."""
        spy = Path(sys.executable).with_name("py-spy")
        dump = [spy, "dump", f"--pid={self.process.pid}"]
        told = subprocess.run(dump, check=True, capture_output=True, text=True).stdout
        return len(_WAITS_FOR_A_TASK.findall(told))

    def mappings(self) -> int:
        return len(Path(f"/proc/{self.process.pid}/maps").read_text().splitlines())

    def info(self) -> pb.GetServerInfoResponse:
        """What it tells of itself, over a connection of its own."""
        with wire.bare_channel(self.target) as channel:
            return wire.server_info(channel)

    def in_flight(self) -> tuple[int, int]:
        """Calls and bytes."""
        info = self.info()
        return info.calls_in_flight, info.bytes_in_flight

    def seconds_until(self, condition: Callable[[], bool], most: float) -> float:
        """Infinite if that takes longer than ``most``."""
        start = time.monotonic()
        while (seconds := time.monotonic() - start) < most:
            if condition():
                return seconds
            time.sleep(0.2)
        return float("inf")

    def seconds_until_idle(self, most: float) -> float:
        """Until nothing is in flight."""
        return self.seconds_until(lambda: self.in_flight() == (0, 0), most)

    def note(self, *figures: object) -> None:
        self.notes += map(str, figures)

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
) -> Iterator[AttackedServer]:
    """Starts a server, with so many descriptors at most, and kills it at the end."""
    given = shlex.split(os.environ.get("ATTACKED_SERVER", ""))
    command = given or [sys.executable, "-m", "npucall_server"]
    if descriptors is not None:
        command = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command]
    ready, log = folder / "ready", folder / "log"
    options = [f"--memory-limit={limit}", "--listen=127.0.0.1:0", f"--ready-file={ready}"]
    with log.open("wb") as output:
        process = subprocess.Popen([*command, *options, *flags], stderr=output, env=environment)
    try:
        wire.until(lambda: ready.exists() or process.poll() is not None, "the server starts")
        assert process.poll() is None, log.read_text()
        now = wire.resident_bytes(process.pid)
        server = AttackedServer(ready.read_text(), process, log, limit, now)
        Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # the peak begins here
        threading.Thread(target=_watch, args=(server,)).start()
        yield server
    finally:
        process.kill()
        process.wait()


def _watch(server: AttackedServer) -> None:
    """Kills the server once it is larger than its cap."""
    with suppress(OSError):  # it has ended
        while server.process.poll() is None:
            if wire.resident_bytes(server.process.pid) > server.cap:
                server.killed = True
                server.process.kill()
            time.sleep(_POLL_SECONDS)
