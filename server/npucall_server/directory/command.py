"""The command ``npucall-directory``: serves the table of a pool until SIGTERM."""

from __future__ import annotations

import gc
import signal
import sys
from typing import NoReturn

from npucall_server.commands import command_line
from npucall_server.commands.command_line import DIRECTORY
from npucall_server.directory.app import Directory
from npucall_server.directory.settings import DirectorySettings, read
from npucall_server.exits import ExitCode
from npucall_server.serving import process
from npucall_server.serving.binding import BindError
from npucall_server.settings.listener import quiet_grpc


def main() -> NoReturn:
    """Runs the command of ``sys.argv`` and exits with a code of ``ExitCode``."""
    quiet_grpc()
    command_line.main_of(DIRECTORY, read, serve, sys.argv[1:])


def serve(settings: DirectorySettings) -> ExitCode:
    """Serves until SIGTERM or SIGINT."""
    log = process.open_log(settings)
    try:
        code = _serve_on(settings, Directory(settings, log))
    except BindError as error:
        code = command_line.fail(DIRECTORY, error.code, str(error))
    except Exception:  # noqa: BLE001  # the log says what it was
        code = process.bug(log)
    log.flush()
    return code


def _serve_on(settings: DirectorySettings, directory: Directory) -> ExitCode:
    signals = process.stop_signals()
    gc.freeze()
    try:
        directory.start()
    except OSError as error:
        message = f"ready_file: {settings.ready_file}: {error}"
        return command_line.fail(DIRECTORY, ExitCode.SETTINGS, message)
    while signals.recv(1)[0] == signal.SIGHUP:
        directory.reload()
    directory.drain()
    return ExitCode.DRAINED


if __name__ == "__main__":
    main()
