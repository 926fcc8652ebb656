"""The log: one JSON object a line on standard error. Lines of calls are formatted by hand.

The server never waits for the reader of the log. A thread writes it. Lines without room are dropped
and counted, and the next line that can be written says how many were dropped.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Literal, TextIO

from npucall.limits import MAX_TRACEBACK_CHARACTERS
from npucall.texts import middle_cut

GRPC, FRAMES = "grpc", "frames"
"""What carries calls, as the log, metrics, spans and the account say it."""

_MOST_WAITING = 4096
"""The most lines that wait. More lines of calls are dropped."""
_ROOM_FOR_EVENTS = 256
"""Additional lines that may wait, for events of the server itself."""
_FLUSH_SECONDS = 1.0
_BLOCKED_SECONDS = 0.01
_text = json.JSONEncoder().encode  # only ASCII, so that no text of a caller controls a terminal


@dataclass(slots=True)
class Record:
    """What the log says about a call. Methods fill in what they find out.

    Records wait, and some texts are kept. So texts that a caller wrote are cut before they are
    filled in.
    """

    method: str
    request_id: str
    peer: str
    tenant: str = ""
    caller: str = ""
    """The caller's name within the tenant."""
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
    device_ns: int = 0
    """How long the call held the device, by the host's clock."""
    told_ns: int = 0
    """The part of ``device_ns`` that the account was told while the call ran."""
    total_ns: int = 0
    reason: str = "OK"
    message: str = ""
    driver_message: str = ""
    traceback: str = ""
    traceparent: str = ""
    """The caller's span, from its metadata."""
    carrier: str = GRPC
    """What carried it; the line says it only if it is another."""
    time_ns: int = 0
    """When the call was answered, since 1970."""


SLOW_SECONDS = 1.0
"""A call of this length or longer counts as slow."""


class Log:
    """Writes events and calls. ``calls`` says which calls get a line.

    ``delay``: seconds that lines may wait. The log's own thread then writes them together.
    With 0 there is no thread, and the thread that logs also writes.
    """

    def __init__(
        self,
        calls: Literal["all", "errors", "slow"] = "all",
        stream: TextIO | None = None,
        delay: float = 0.0,
    ) -> None:
        self._calls = calls
        self._output = _output_to(stream or sys.stderr)
        self._delay = delay
        self._waiting: deque[Record | str | threading.Event] = deque()
        self._dropped = 0
        self._dropping = threading.Lock()
        self._writing = threading.Lock()
        self._wake, self._hurry = threading.Event(), threading.Event()
        self._awake = False
        if delay:
            threading.Thread(target=self._write_later, name="npucall-log", daemon=True).start()

    def event(self, event: str, **facts: str | float) -> None:
        """Logs an event of the server."""
        bounded = {
            name: middle_cut(fact, MAX_TRACEBACK_CHARACTERS) if isinstance(fact, str) else fact
            for name, fact in facts.items()
        }
        line = _text({"time": _time(time.time_ns()), "event": event, **bounded})
        if len(self._waiting) >= _MOST_WAITING + _ROOM_FOR_EVENTS:
            self._drop(1)
        else:
            self._waiting.append(line)
            self._tell_writer()

    def call(self, record: Record) -> None:
        """Logs a call that was answered."""
        slow = self._calls == "slow" and record.total_ns >= SLOW_SECONDS * 1e9
        if self._calls == "all" or slow or record.reason != "OK":
            record.time_ns = time.time_ns()
            if len(self._waiting) >= _MOST_WAITING:
                self._drop(1)
                return
            self._waiting.append(record)
            if not self._awake:
                self._tell_writer()

    def flush(self, seconds: float = _FLUSH_SECONDS) -> bool:
        """Writes all waiting lines. Answers whether that was possible within these seconds."""
        if not self._delay:
            return True
        written = threading.Event()
        self._waiting.append(written)
        self._hurry.set()
        self._wake.set()
        return written.wait(seconds)

    def _tell_writer(self) -> None:
        """A line waits."""
        if not self._delay:
            self._write()
        elif not self._awake:
            self._awake = True
            self._wake.set()

    def _drop(self, lines: int) -> None:
        with self._dropping:
            self._dropped += lines

    def _write_later(self) -> None:
        """The thread that writes."""
        while True:
            self._wake.wait()
            self._wake.clear()
            self._hurry.wait(self._delay)
            self._hurry.clear()
            self._awake = False  # before it looks: a later line wakes it again
            self._write()

    def _write(self) -> None:
        """Writes the waiting lines. Other threads that write wait until it is done."""
        with self._writing:
            lines, written = list[str](), list[threading.Event]()
            for _ in range(len(self._waiting)):
                each = self._waiting.popleft()
                if isinstance(each, Record):
                    lines.append(_line(each))
                elif isinstance(each, str):
                    lines.append(each)
                else:
                    written.append(each)
            with self._dropping:
                dropped, self._dropped = self._dropped, 0
            if dropped:
                lines.append(_dropped_line(dropped))
            try:
                self._output("\n".join([*lines, ""]))
            except (OSError, ValueError):  # the reader has gone, or the disk is full
                self._drop(len(lines) - bool(dropped) + dropped)
            for event in written:
                event.set()


class LibraryLines(logging.Handler):
    """Takes lines of libraries from Python's ``logging``, which would wait for standard error."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.event("warning", logger=record.name, message=self.format(record))


def _output_to(stream: TextIO | None) -> Callable[[str], object]:
    """The function that writes text to a stream.

    It writes to the file descriptor itself. A thread that waits in a write of Python's buffer would
    hold the buffer's lock, and the end of the process would wait for it. ``stream`` is None if
    descriptor 2 was closed at the start.
    """
    if stream is None:
        return lambda _: None
    try:
        descriptor = stream.fileno()
    except (io.UnsupportedOperation, ValueError):  # in memory, or closed
        return stream.write
    return partial(_write_all, descriptor)


def _write_all(descriptor: int, text: str) -> None:
    rest = memoryview(text.encode())
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # another process that shares the pipe made it so
            time.sleep(_BLOCKED_SECONDS)


def _dropped_line(lines: int) -> str:
    return _text({"time": _time(time.time_ns()), "event": "log lines dropped", "lines": lines})


def _line(record: Record) -> str:
    line = (
        f'{{"time": "{_time(record.time_ns)}", "event": "call", "method": "{record.method}", '
        f'"request_id": {_text(record.request_id)}, '
        f"{_shared(record.peer, record.tenant, record.caller, record.operator, record.variant)}, "
        f'"reason": "{record.reason}", "request_bytes": {record.request_bytes}, '
        f'"response_bytes": {record.response_bytes}, "total_ns": {record.total_ns}, '
        f'"decode_ns": {record.decode_ns}, "check_ns": {record.check_ns}, '
        f'"queue_ns": {record.queue_ns}, "run_ns": {record.run_ns}, '
        f'"encode_ns": {record.encode_ns}, "device_ns": {record.device_ns}'
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
    if record.carrier != GRPC:
        line += f', "carrier": {_text(record.carrier)}'
    if record.traceparent:
        line += f', "traceparent": {_text(record.traceparent)}'
    if record.traceback:
        line += f', "traceback": {_text(record.traceback)}'
    return line + "}"


@lru_cache(1024)
def _shared(peer: str, tenant: str, caller: str, operator: str, variant: str) -> str:
    """What many calls have in common in their lines."""
    return (
        f'"peer": {_text(peer)}, "tenant": {_text(tenant)}, "caller": {_text(caller)}, '
        f'"operator": {_text(operator)}, "variant": {_text(variant)}'
    )


def _time(nanoseconds: int) -> str:
    second = _until_the_second(nanoseconds // 1_000_000_000)
    return f"{second}.{nanoseconds // 1_000_000 % 1000:03}+00:00"


@lru_cache(1)
def _until_the_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]
