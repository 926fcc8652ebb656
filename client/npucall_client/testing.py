"""For tests of programs that use npucall: a pytest fixture, and a server for a while.

In a ``conftest.py``: ``pytest_plugins = ["npucall_client.testing"]``. Then a test that takes
``npu`` gets a client of a CPU server that runs for the session; ``npucall_server`` is the target
alone, as ``npu.target`` is. If NPUCALL_TARGET is set, such as to ``local:``, that is the target,
and nothing is started. Each worker of pytest-xdist has a session, and a server, of its own. Needs
the extra ``testing``.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from npucall.texts import missing_extra

try:
    import pytest
except ImportError as error:
    raise ImportError(
        missing_extra("npucall_client.testing", "npucall-client", "testing")
    ) from error

from collections.abc import Iterator, Mapping

from npucall.errors import NpucallError
from npucall_client.client import Client, connect
from npucall_client.settings import target_of_environment

_START_SECONDS = 120.0
_STOP_SECONDS = 45.0
_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class ServerProcess:
    """A server in a process of its own."""

    target: str
    """What ``connect`` takes."""
    process: subprocess.Popen[bytes]
    log: Path
    """Its standard error: one JSON object a line."""

    def stop(self) -> int:
        """Asks it to drain and answers its exit code."""
        self.process.terminate()
        return self.process.wait(_STOP_SECONDS)


@contextmanager
def running_server(
    *flags: str, listen: str = "127.0.0.1:0", environment: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    """Starts ``npucall-server`` with these flags, waits until it answers, stops it at the end.

    ``environment``: all of the server's environment variables; if not given, this process's.

    Raises RuntimeError, with what it said, if it ends or does not answer in two minutes.
    """
    if find_spec("npucall_server") is None:
        raise ImportError(missing_extra("running_server", "npucall-client", "testing"))
    with tempfile.TemporaryDirectory(prefix="npucall-") as folder:
        ready, log = Path(folder, "ready"), Path(folder, "log")
        command = [sys.executable, "-m", "npucall_server", "--listen", listen]
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603  # our own server
                [*command, "--ready-file", str(ready), *flags],
                stderr=output,
                env=environment,
            )
        try:
            _wait_for(ready, process, log)
            server = ServerProcess(ready.read_text(), process, log)
            yield server
            if process.poll() is None:
                server.stop()
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def npucall_server_flags() -> tuple[str, ...]:
    """Flags of the server that ``npucall_server`` starts; override it to change them."""
    return ()


@pytest.fixture(scope="session")
def npucall_server(npucall_server_flags: tuple[str, ...]) -> Iterator[str]:
    """The target of a server: that of NPUCALL_TARGET, else one that runs for the session.

    The server of NPUCALL_TARGET is called once a session; if it does not answer, tests that need it
    fail with a sentence that says so.
    """
    if given := target_of_environment():
        _probe(given)
        yield given
        return
    if find_spec("npucall_server") is None:
        pytest.fail(
            f"{missing_extra('npucall_server', 'npucall-client', 'testing')}, so that the fixture "
            "can start a server, or set NPUCALL_TARGET=local:",
            pytrace=False,
        )
    with running_server(*npucall_server_flags) as server:
        yield server.target


@pytest.fixture(scope="session")
def npu(npucall_server: str) -> Iterator[Client]:
    """A client of that server, open for the session."""
    with connect(npucall_server) as client:
        yield client


def _probe(target: str) -> None:
    """Fails the test that asked for the server if nothing answers there."""
    try:
        with connect(target) as client:
            client.server_info()
    except (NpucallError, ValueError) as error:
        pytest.fail(
            f"npucall_server: {error}; or unset NPUCALL_TARGET: then the fixture starts a server "
            "on the CPU",
            pytrace=False,
        )


def _wait_for(ready: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"npucall-server did not start: {log.read_text().strip()}")
        time.sleep(_POLL_SECONDS)
