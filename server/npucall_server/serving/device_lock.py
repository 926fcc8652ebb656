"""The lock of a device: one process holds it, others wait [src:pool-device-lock]."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from npucall_server.exits import ExitCode

if sys.platform != "win32":
    import fcntl


_POLL_SECONDS = 0.1


class LockError(Exception):
    """The file cannot be locked as the settings say; the text names the setting."""

    code = ExitCode.SETTINGS


class TakenError(LockError):
    """Another process held the lock all the time. The text names the process and the setting."""

    code = ExitCode.DEVICE_TAKEN


def take(path: Path, wait: float, note: Callable[[str], None]) -> None:
    """Locks the file until this process ends, however it ends. Makes the file if need be.

    If another process has the lock, calls ``note`` with a message and waits up to ``wait`` seconds.

    Raises LockError or TakenError.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise LockError(
            f"device_lock: expected a file that this user may write, found: {error}"
        ) from error
    end = time.monotonic() + wait
    if not _locked(descriptor):
        note(f"device_lock: {_holder(descriptor)} has {path}; this server waits up to {wait:g} s")
        while not _locked(descriptor):
            if time.monotonic() >= end:
                raise TakenError(
                    f"device_lock: {_holder(descriptor)} has held {path} for {wait:g} s "
                    "(device_lock_wait); end that process, or wait longer"
                )
            time.sleep(_POLL_SECONDS)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)


def _locked(descriptor: int) -> bool:
    """Locks it unless another process has. The kernel unlocks it when the process ends."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(descriptor: int) -> str:
    """The process that wrote its number last: it has the lock, or has just got it."""
    number = os.pread(descriptor, 20, 0).decode("ascii", "replace")
    return f"process {number}" if number.isdigit() else "another process"
