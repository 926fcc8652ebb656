"""What the system allows this process."""

from __future__ import annotations

import sys

from npucall_server.telemetry.log import Log

if sys.platform != "win32":
    import resource

_UNLIMITED = 2**20
"""Used if there is no limit."""
_WITHOUT_LIMITS = 512
"""Files that a C library opens where the system has no such limit (Windows)."""


def descriptors() -> int:
    """Raises the limit of open files as far as the process may. Answers the new limit.

    Every connection is a descriptor, and each region of shared memory takes two.
    """
    if sys.platform == "win32":
        return _WITHOUT_LIMITS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    except (OSError, ValueError):  # macOS says "unlimited" but does not accept it
        pass
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def connections(wanted: int, doors: int, others: int, log: Log) -> int:
    """How many connections each of ``doors`` may have; for all else there may be ``others``.

    Where they are fewer than ``wanted``, the log says how many files these need.
    """
    most = descriptors()
    possible = max(most - others, most // 2) // doors
    if possible < wanted:
        needed = wanted * doors + min(wanted * doors, others)
        log.event(
            "warning",
            message=f"only {most} files may be open at a time, enough for {possible} connections "
            f"at each address: {wanted} need {needed} files; raise the limit (ulimit -Hn, "
            "LimitNOFILE)",
        )
    return possible
