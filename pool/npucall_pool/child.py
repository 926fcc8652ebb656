"""A server's process, which does not outlive the process that started it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from npucall_pool import environment

_LAST_BYTES = 4096
_LAST_CHARACTERS = 300


class ChildProcess:
    """Starts a command. Its output goes to ``log``; the previous log is kept next to it.

    ``ready`` is a file that the server writes when it serves. Make this object in a thread that
    lives as long as this process: the kernel kills the server when that thread ends.
    """

    def __init__(self, command: Sequence[str], ready: Path, log: Path) -> None:
        self._ready, self._log = ready, log
        ready.unlink(missing_ok=True)
        if log.exists():
            log.replace(log.with_suffix(".before.log"))
        with log.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603  # the command that the administrator chose
                [sys.executable, "-I", "-m", "npucall_pool.bound", str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment.of_server(),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The server's process number."""
        return self._process.pid

    def exit_code(self) -> int | None:
        return self._process.poll()

    def answers(self) -> bool:
        return self._ready.exists()

    def last_words(self) -> str:
        with self._log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LAST_BYTES))
            lines = log.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:_LAST_CHARACTERS] if lines else ""

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()


def own_folder(path: str) -> Path:
    """A folder for locks and logs to which only this user may write. Makes it if it is missing.

    Raises OSError.
    """
    folder = Path(path) if path else Path(tempfile.gettempdir(), f"npucall-pool-{os.getuid()}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022 or folder.is_symlink():
        raise PermissionError(
            f"folder: expected one that user {os.getuid()} has and nobody else may write to, found "
            f"{folder}; --folder names another one"
        )
    return folder
