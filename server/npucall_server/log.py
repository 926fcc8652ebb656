"""The log: one JSON object a line on standard error; a line for each call, formatted by hand."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal, TextIO

_MOST_WAITING = 4096
"""Lines; more are written by whoever answers calls."""
_text = json.JSONEncoder(ensure_ascii=False).encode
_usual_text = lru_cache(1024)(_text)  # of what calls have in common


@dataclass(slots=True)
class Record:
    """What the log says about a call; methods fill in what they find out."""

    method: str
    request_id: str
    peer: str
    operator: str = ""
    variant: str = ""
    request_bytes: int = 0
    response_bytes: int = 0
    decode_ns: int = 0
    check_ns: int = 0
    queue_ns: int = 0
    run_ns: int = 0
    encode_ns: int = 0
    copy_in_ns: int = 0
    plan_ns: int = 0
    copy_out_ns: int = 0
    total_ns: int = 0
    reason: str = "OK"
    message: str = ""
    driver_message: str = ""
    traceback: str = ""
    time_ns: int = 0
    """When it was answered, since 1970."""


class Log:
    """Writes events and calls. ``calls`` says which calls get a line.

    ``delay``: seconds that the lines of calls that went well may wait, to be written together by a
    thread of the log's own; with 0 each is written by whoever answered the call.
    """

    def __init__(
        self,
        calls: Literal["all", "errors", "slow"] = "all",
        slow_seconds: float = 1.0,
        stream: TextIO | None = None,
        delay: float = 0.0,
    ) -> None:
        self._calls = calls
        self._slow_ns = slow_seconds * 1e9
        self._stream = stream or sys.stderr  # None where descriptor 2 was closed at the start
        self._delay = delay
        self._waiting: deque[Record] = deque()
        self._writing = threading.Lock()
        self._wake = threading.Event()
        self._awake = not delay
        if delay:
            threading.Thread(target=self._write_later, name="npucall-log", daemon=True).start()

    def event(self, event: str, **facts: str | float) -> None:
        """Something that happened to the server."""
        self._write(_text({"time": _time(time.time_ns()), "event": event, **facts}))

    def call(self, record: Record) -> None:
        """A call that was answered."""
        failed = record.reason != "OK"
        slow = self._calls == "slow" and record.total_ns >= self._slow_ns
        if not (failed or slow or self._calls == "all"):
            return
        record.time_ns = time.time_ns()
        if failed or not self._delay or len(self._waiting) >= _MOST_WAITING:
            self._write(_line(record))
            return
        self._waiting.append(record)
        if not self._awake:
            self._awake = True
            self._wake.set()

    def flush(self) -> None:
        """Hands everything to the system."""
        self._write()

    def _write_later(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            time.sleep(self._delay)
            self._awake = False  # before it looks: who comes later wakes it again
            self._write()

    def _write(self, *lines: str) -> None:
        """Writes what waits, and then these."""
        with self._writing:
            waiting = [_line(self._waiting.popleft()) for _ in range(len(self._waiting))]
            if self._stream is None:
                return
            try:
                self._stream.write("".join(f"{line}\n" for line in (*waiting, *lines)))
                self._stream.flush()
            except (OSError, ValueError):
                pass  # whoever read the log is gone; the calls are still worth answering


def _line(record: Record) -> str:
    line = (
        f'{{"time": "{_time(record.time_ns)}", "event": "call", "method": "{record.method}", '
        f'"request_id": {_text(record.request_id)}, "peer": {_usual_text(record.peer)}, '
        f'"operator": {_usual_text(record.operator)}, '
        f'"variant": {_usual_text(record.variant)}, '
        f'"reason": "{record.reason}", "request_bytes": {record.request_bytes}, '
        f'"response_bytes": {record.response_bytes}, "total_ns": {record.total_ns}, '
        f'"decode_ns": {record.decode_ns}, "check_ns": {record.check_ns}, '
        f'"queue_ns": {record.queue_ns}, "run_ns": {record.run_ns}, '
        f'"encode_ns": {record.encode_ns}'
    )
    if record.plan_ns:
        line += (
            f', "copy_in_ns": {record.copy_in_ns}, "plan_ns": {record.plan_ns}, '
            f'"copy_out_ns": {record.copy_out_ns}'
        )
    if record.reason != "OK":
        line += f', "message": {_text(record.message)}'
    if record.driver_message:
        line += f', "driver_message": {_text(record.driver_message)}'
    if record.traceback:
        line += f', "traceback": {_text(record.traceback)}'
    return line + "}"


def _time(nanoseconds: int) -> str:
    seconds, milliseconds = divmod(nanoseconds // 1_000_000, 1000)
    return f"{_until_the_second(seconds)}.{milliseconds:03}+00:00"


@lru_cache(1)
def _until_the_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]
