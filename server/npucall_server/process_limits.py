"""What the system allows this process."""

from __future__ import annotations

import sys

if sys.platform != "win32":
    import resource

_UNLIMITED = 2**20
"""Taken for a limit that is none."""
_WITHOUT_LIMITS = 512
"""Files that a C library opens where the system has no such limit (Windows)."""
FEW = 1024
"""Descriptors; with less, a few hundred idle connections shut others out."""


def descriptors() -> int:
    """Raises the limit of open files to what the process may have; answers that number.

    Every connection is a descriptor, and each region of shared memory takes two.
    """
    if sys.platform == "win32":
        return _WITHOUT_LIMITS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    except (OSError, ValueError):  # macOS says "unlimited", and takes no such thing
        pass
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft
