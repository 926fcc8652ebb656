"""What every command that serves needs from its process: its log, signals, last words."""

from __future__ import annotations

import logging
import signal
import socket
import traceback

from npucall_server.exits import ExitCode
from npucall_server.settings.listener import ListenerSettings
from npucall_server.telemetry.log import LibraryLines, Log

_LOG_DELAY = 0.01
"""Seconds that lines may wait. Written one by one they would take a tenth of a small call."""


def open_log(settings: ListenerSettings) -> Log:
    """The log of the process. Lines of other libraries go there too."""
    log = Log(settings.log_calls, delay=_LOG_DELAY)
    logging.getLogger().addHandler(LibraryLines(log))
    for fault in settings.warnings:
        log.event("warning", message=fault)
    return log


def stop_signals() -> socket.socket:
    """A socket that has a byte, its number, for each SIGTERM, SIGINT and SIGHUP that came.

    The kernel may give a signal to any thread. Python runs handlers only in the main thread, and a
    main thread that waits for a lock would not wake. But the thread that got the signal writes the
    byte.
    """
    reader, writer = socket.socketpair()
    writer.settimeout(0)  # set_wakeup_fd needs a socket that does not block
    signal.set_wakeup_fd(writer.detach())
    for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
        signal.signal(number, lambda *_: None)
    return reader


def bug(log: Log) -> ExitCode:
    """Logs an exception that is a bug."""
    log.event("bug", traceback=traceback.format_exc())
    return ExitCode.BUG
