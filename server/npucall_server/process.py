"""What every command that serves needs of its process: signals, its last words, its output."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import traceback
from typing import TYPE_CHECKING, NoReturn

import npucall_server
from npucall_server import process_limits
from npucall_server.exits import ExitCode
from npucall_server.front_settings import unknown_variables
from npucall_server.log import LibraryLines, Log

if TYPE_CHECKING:
    from npucall_server.front_settings import FrontSettings

_LOG_DELAY = 0.01
"""Seconds that lines may wait: written one by one they take a tenth of small calls."""


def open_log(settings: FrontSettings) -> Log:
    """The log of the process, which other libraries' lines go to as well."""
    log = Log(settings.log_calls, settings.slow_call, delay=_LOG_DELAY)
    logging.getLogger().addHandler(LibraryLines(log))
    for fault in unknown_variables():
        log.event("warning", message=fault)
    if (limit := process_limits.descriptors()) < process_limits.FEW:
        message = f"only {limit} files may be open at a time, and each connection is one"
        log.event("warning", message=f"{message}; raise the limit (ulimit -Hn, LimitNOFILE)")
    return log


def stop_signals() -> socket.socket:
    """A socket that has a byte, its number, for each SIGTERM, SIGINT and SIGHUP that came.

    The kernel may give a signal to any thread, and Python runs handlers in the main thread alone,
    which a lock would keep asleep. The byte is written in the thread that got the signal.
    """
    reader, writer = socket.socketpair()
    writer.settimeout(0)  # set_wakeup_fd wants it not to block
    signal.set_wakeup_fd(writer.detach())
    for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
        signal.signal(number, lambda *_: None)
    return reader


def say_version(command: str) -> NoReturn:
    """Answers ``--version``, and exits."""
    sys.stdout.write(f"{command} {npucall_server.__version__}\n")
    sys.exit(ExitCode.DRAINED)


def fail(command: str, code: ExitCode, message: str) -> ExitCode:
    """Says why the process ends."""
    if sys.stderr is not None:  # closed at the start
        sys.stderr.write(f"{command}: {message}\n")
    return code


def bug(log: Log) -> ExitCode:
    """The log has what happened."""
    log.event("bug", traceback=traceback.format_exc())
    return ExitCode.BUG


def flush_or_discard() -> None:
    """Lets go of a log that nobody reads any more; else Python would exit with 120 for it."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
