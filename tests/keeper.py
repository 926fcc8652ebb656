"""Whoever starts a server, and starts it again where it ends: on a device that some calls end."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.client.pool.heard import lasting_port, until

if TYPE_CHECKING:
    from collections.abc import Iterator

_MORTAL = Path(__file__).parent / "mortal"


def mortal_environment(folder: Path) -> dict[str, str]:
    """Of a process in which the package of ``tests/mortal`` is installed."""
    metadata = folder / "npucall_mortal-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: npucall-mortal\nVersion: 1.0\n")
    points = "[npucall_server.devices]\nmortal = npucall_mortal:open_mortal\n"
    (metadata / "entry_points.txt").write_text(points)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(_MORTAL)])}


class Keeper:
    """Keeps one server at one address, and counts how often it ended by itself."""

    def __init__(self, folder: Path, *flags: str, lanes: int = 1) -> None:
        self.target = f"127.0.0.1:{lasting_port()}"
        self.endings: list[int] = []
        """Exit codes of the processes that ended, in order."""
        self.log = folder / "log"
        self._ready = folder / "ready"
        self._command = [
            sys.executable, "-m", "npucall_server", "--listen", self.target,
            "--device", f"mortal:{lanes}", "--ready-file", str(self._ready), *flags,
        ]  # fmt: skip
        self._environment = mortal_environment(folder)
        self._stopping = threading.Event()
        self._process = self._started()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def wait_until_ready(self, endings: int = 0) -> None:
        """Until so many processes have ended, and the one that runs now answers."""
        until(lambda: len(self.endings) >= endings and self._ready.exists(), "a server answers")

    def signal(self, number: int) -> None:
        """Sends one to the process that runs now."""
        self._process.send_signal(number)

    def stop(self) -> None:
        """Ends the server for good."""
        self._stopping.set()
        self._process.kill()
        self._thread.join()

    def _keep(self) -> None:
        while not self._stopping.is_set():
            code = self._process.wait()
            if not self._stopping.is_set():
                self._process = self._started()
                self.endings.append(code)
        self._process.kill()

    def _started(self) -> subprocess.Popen[bytes]:
        self._ready.unlink(missing_ok=True)
        with self.log.open("ab") as log:
            return subprocess.Popen(  # our own server
                self._command, stderr=log, env=self._environment
            )


@contextmanager
def kept_server(*flags: str, lanes: int = 1) -> Iterator[Keeper]:
    """A server that a keeper keeps, once it answers."""
    with tempfile.TemporaryDirectory(prefix="npucall-kept-") as folder:
        keeper = Keeper(Path(folder), *flags, lanes=lanes)
        try:
            keeper.wait_until_ready()
            yield keeper
        finally:
            keeper.stop()
