"""The machine's facts in the report: they help to explain findings, and do not name the host."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import version


def described(device: str) -> dict[str, str]:
    """The head of a report."""
    return {
        "device": device,
        "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "npucall": version("npucall-server"),
        "python": f"{platform.python_version()}, {platform.libc_ver()[0] or 'libc'} "
        f"{platform.libc_ver()[1] or 'unknown'}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} "
        f"{platform.release()}",
    }
