"""Runs a program that the kernel kills when the process that started it is gone.

Ray kills an actor and leaves its children [src:pool-ray-keeper].
``python -I -m npucall_pool.bound PID PROGRAM ARGUMENTS``: PID is the process that starts it. The
kernel looks at the thread in it: the one that starts this must live as long as the process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
PARENT_GONE = 125
"""Exit code where the parent had ended before the kernel was told."""
NOT_STARTED = 127
"""Exit code where there is no such program."""


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
