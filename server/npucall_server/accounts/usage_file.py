"""The file of the account: a JSON line for each caller and minute, so that quotas survive restarts.

A thread appends to it. It is rotated by size: FILE, then FILE.1, the one before it, and so on.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

from npucall_server.accounts.usage import Usage, UsageKey, UsageLine, UsagePeriod
from npucall_server.telemetry.log import Log

_SECONDS = 5.0
"""Between looks whether a minute has ended."""
_LAST_SECONDS = 1.0
MOST_BYTES = 16 * 2**20
"""From which on a file is rotated: a month of ten callers who call every minute takes six."""
OLD_FILES = 8


class UsageFile:
    """Reads what the file has, then appends the minutes of an account to it as they end.

    A file that cannot be written is a warning in the log, once; the account is kept all the same,
    and what is missing is written once that is possible again, if it is not older than two hours.
    Raises OSError where the file cannot be opened at the start.
    """

    def __init__(self, path: Path, usage: Usage, log: Log) -> None:
        self._path, self._usage, self._log = path, usage, log
        self._warned = False
        self._stopped = threading.Event()
        self._open().close()
        self._restore()
        self._thread = threading.Thread(target=self._watch, name="npucall-usage", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Writes all that is left, with the current minute, and ends."""
        self._stopped.set()
        self._thread.join(_LAST_SECONDS)
        self._write(self._usage.unwritten(current=True))

    def _watch(self) -> None:
        while not self._stopped.wait(_SECONDS):
            self._write(self._usage.unwritten())

    # --- Reading ----------------------------------------------------------------------------------

    def _restore(self) -> None:
        unread = 0
        for path in (*(self._old(number) for number in range(OLD_FILES, 0, -1)), self._path):
            if path.exists():
                with path.open("rb") as file:
                    unread += sum(not self._restored(line) for line in file)
        if unread:
            self._log.event(
                "warning",
                message=f"usage_file: expected a JSON line for each caller and minute in "
                f"{self._path}, found {unread} other lines; the server ignores them",
            )

    def _restored(self, line: bytes) -> bool:
        """Counts a line; False for one that is torn, or is none of this server's."""
        try:
            start, lines = _read(line)
        except (ValueError, TypeError, KeyError, AttributeError):
            return False
        self._usage.restore(start, lines)
        return True

    def _old(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    # --- Writing ----------------------------------------------------------------------------------

    def _write(self, minutes: list[UsagePeriod]) -> None:
        """Each minute wholly or not at all."""
        try:
            for minute in minutes:
                if minute.lines:
                    self._rotate()
                    self._append("".join(f"{line}\n" for line in _lines(minute)).encode())
                minute.is_written = True
        except OSError as error:
            self._warn(error)

    def _append(self, data: bytes) -> None:
        with self._open() as file:
            before = file.tell()
            torn = before > 0 and not self._ends_a_line(before)
            data = b"\n" * torn + data
            try:
                while data:
                    data = data[file.write(data) :]
            except OSError:
                file.truncate(before)
                raise

    def _open(self) -> FileIO:
        """To append; what people did is not for everybody on the host."""
        return open(  # the caller closes it
            self._path, "ab", buffering=0, opener=lambda path, flags: os.open(path, flags, 0o640)
        )

    def _ends_a_line(self, size: int) -> bool:
        with self._path.open("rb") as file:
            file.seek(size - 1)
            return file.read(1) == b"\n"

    def _rotate(self) -> None:
        if not self._path.exists() or self._path.stat().st_size < MOST_BYTES:
            return
        for number in range(OLD_FILES, 1, -1):
            if self._old(number - 1).exists():
                self._old(number - 1).replace(self._old(number))
        self._path.replace(self._old(1))

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            self._log.event(
                "warning",
                message=f"usage_file: the server cannot write to {self._path}: {error}; it keeps "
                "the account in memory and tries again",
            )


def _lines(minute: UsagePeriod) -> Iterator[str]:
    """A line for each caller, its operators inside."""
    callers: dict[tuple[str, str], dict[str, Any]] = {}
    for (tenant, caller, operator), line in tuple(minute.lines.items()):
        callers.setdefault((tenant, caller), {})[operator] = {
            "calls": line.calls,
            "request_bytes": line.request_bytes,
            "response_bytes": line.response_bytes,
            "device_ns": line.device_ns,
            "refusals": dict(line.refusals),
            "calls_in_frames": line.in_frames,
        }
    for (tenant, caller), operators in callers.items():
        yield json.dumps(
            {"minute": minute.start, "tenant": tenant, "caller": caller, "operators": operators}
        )


def _read(text: bytes) -> tuple[int, list[tuple[UsageKey, UsageLine]]]:
    """A line of the file. Raises what shows that it is none."""
    read = json.loads(text)
    tenant, caller = str(read["tenant"]), str(read["caller"])
    lines = [
        (
            UsageKey(tenant, caller, operator),
            UsageLine(
                int(used["calls"]),
                int(used["request_bytes"]),
                int(used["response_bytes"]),
                int(used["device_ns"]),
                {str(reason): int(count) for reason, count in used["refusals"].items()},
                int(used.get("calls_in_frames", 0)),  # a line of an older server has none
            ),
        )
        for operator, used in read["operators"].items()
    ]
    return int(read["minute"]), lines
