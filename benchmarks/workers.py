"""The benchmark's side of the processes: servers, and a worker for each way."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from cases import FLIGHT, FRAMES_TCP, FRAMES_TLS, GRPC_ALONE, PROGRAM, RESIDENT, TEACHER
from flight import running_flight
from ways import WAYS
from yardstick import running_yardstick

from npucall_client import Client
from npucall_client.testing import running_server
from npucall_server.commands.authority import Authority
from npucall_server.settings.server import ServerSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

_WORKER = Path(__file__).with_name("worker.py")
_SHARED = ("shared memory copied", "shared memory in place")
_IN_SESSIONS = (PROGRAM, TEACHER, RESIDENT)


class Server(NamedTuple):
    """A server process."""

    target: str
    pid: int


@contextmanager
def _flight() -> Iterator[Server]:
    with running_flight() as it:
        yield Server(*it)


@contextmanager
def _frames_port(*, tls: bool) -> Iterator[Server]:
    """Ours, whose frames come in at a port only."""
    with tempfile.TemporaryDirectory(prefix="npucall-bench-") as folder:
        flags, ca = ["--frames-listen=127.0.0.1:0", "--frames-socket=off"], ""
        if tls:
            authority, files = Authority.new(), Path(folder)
            made = authority.server(["127.0.0.1"], 1)
            (files / "ca").write_bytes(authority.issued.certificate)
            (files / "certificate").write_bytes(made.certificate)
            (files / "key").write_bytes(made.key)
            (files / "key").chmod(0o600)
            ca = f" {files / 'ca'}"
            flags += [f"--tls-certificate={files / 'certificate'}", f"--tls-key={files / 'key'}"]
        with running_server("--queue-length", "64", *flags) as server:
            yield Server(server.target + ca, server.process.pid)


_OTHERS = {
    FLIGHT: _flight,
    FRAMES_TCP: partial(_frames_port, tls=False),
    FRAMES_TLS: partial(_frames_port, tls=True),
}
"""Servers of a way alone."""


class Servers:
    """Ours and the yardstick's, and those of other ways once somebody asks for them."""

    def __init__(self, ours: Server, yardstick: Server, opened: ExitStack) -> None:
        self.ours, self.yardstick = ours, yardstick
        self._opened = opened
        self._others: dict[str, Server] = {}

    def of(self, way: str) -> Server:
        """The one that a way talks to."""
        if way in _OTHERS:
            if way not in self._others:
                self._others[way] = self._opened.enter_context(_OTHERS[way]())
            return self._others[way]
        return self.yardstick if way in ("yardstick", GRPC_ALONE) else self.ours


class Worker:
    """A process with a client of its own. Its methods are those of ``worker.Commands``.

    ``inside``: what its command begins with.
    """

    def __init__(self, way: str, target: str, inside: Sequence[str] = ()) -> None:
        command = [*inside, sys.executable, str(_WORKER), way, target]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._process.kill()
        self._process.communicate()

    def ask(self, command: str, *arguments: Any) -> dict[str, Any]:
        """Has it do something, and waits for its answer."""
        requests, answers = self._process.stdin, self._process.stdout
        if requests is None or answers is None:
            raise RuntimeError("worker: expected pipes, found none")
        requests.write(json.dumps([command, arguments]) + "\n")
        requests.flush()
        answer = answers.readline()
        if not answer:
            raise RuntimeError(f"worker: ended at {command}{arguments}; see what it said above")
        return json.loads(answer)


@contextmanager
def running_servers() -> Iterator[Servers]:
    """Both servers, ours with shared memory where it has that."""
    with tempfile.TemporaryDirectory(prefix="npucall-bench-") as folder, running_yardstick() as it:
        shared = ("--shared-memory", f"{folder}/shared") if shares_memory() else ()
        with running_server("--queue-length", "64", *shared) as ours, ExitStack() as opened:
            yield Servers(Server(ours.target, ours.process.pid), Server(*it), opened)


def shares_memory() -> bool:
    """Whether client and server are of a version that has shared memory."""
    return hasattr(Client, "shared") and "shared_memory" in ServerSettings.model_fields


def available(way: str) -> bool:
    """Whether this way can be taken here."""
    if way not in WAYS:
        raise ValueError(f"expected one of {', '.join(WAYS)}, found {way}")
    if way in _IN_SESSIONS:
        return hasattr(Client, "session")
    if way == FLIGHT:
        return find_spec("pyarrow") is not None
    return way not in _SHARED or shares_memory()
