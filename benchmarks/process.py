"""What Linux says of a process: its CPU time and its memory."""

from __future__ import annotations

import os
import re
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_USER, _SYSTEM = 11, 12
"""Fields of /proc/PID/stat behind the name, which is in brackets."""
_CLEAR_PEAK = "5"


def cpu_seconds(pid: int) -> float:
    """User and system time of all its threads so far, to the hundredth of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / _TICKS


def resident_bytes(pid: int) -> int:
    """Memory that it has in RAM."""
    return _status(pid, "VmRSS")


def peak_bytes(pid: int) -> int:
    """The most that it ever had in RAM since it began or ``forget_peak``."""
    return _status(pid, "VmHWM")


def forget_peak(pid: int) -> None:
    """From here on its peak counts anew."""
    Path(f"/proc/{pid}/clear_refs").write_text(_CLEAR_PEAK)


def _status(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"^{name}:\s*(\d+) kB$", status, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"/proc/{pid}/status: expected {name}, found none")
    return int(found[1]) * 1024
