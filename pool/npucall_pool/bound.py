"""Runs a program that the kernel kills when the process that started it has ended.

It is needed because Ray kills an actor, but not its children [src:pool-ray-keeper].
``python -I -m npucall_pool.bound PID PROGRAM ARGUMENTS``: PID is the process that starts it. The
kernel watches the thread that starts it, so that thread must live as long as its process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
PARENT_GONE = 125
"""Exit code if the parent had ended before the kernel knew of it."""
NOT_STARTED = 127
"""Exit code if there is no such program."""


def main() -> NoReturn:
    """Becomes the program of ``sys.argv``."""
    parent, *command = sys.argv[1:]
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != int(parent):
        sys.exit(PARENT_GONE)
    try:
        os.execv(command[0], command)  # noqa: S606  # no shell: this is what the caller asked for
    except OSError as error:
        sys.stderr.write(f"npucall-pool: expected a program, found {command[0]}: {error}\n")
    sys.exit(NOT_STARTED)


if __name__ == "__main__":
    main()
