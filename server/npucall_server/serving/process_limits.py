"""What the system allows this process."""

from __future__ import annotations

import sys

if sys.platform != "win32":
    import resource

_UNLIMITED = 2**20
"""Used if there is no limit."""
_WITHOUT_LIMITS = 512
"""Files that a C library opens where the system has no such limit (Windows)."""
FEW = 1024
"""With fewer descriptors, a few hundred idle connections keep others out."""


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
