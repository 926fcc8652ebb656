"""The command ``npucall-directory``: serves the table of a pool until SIGTERM."""

from __future__ import annotations

import gc
import signal
import sys
from typing import NoReturn

from npucall_server.directory.app import Directory
from npucall_server.directory.settings import DirectorySettings, read
from npucall_server.exits import ExitCode
from npucall_server.serving import process
from npucall_server.serving.binding import BindError
from npucall_server.settings.listener import quiet_grpc

_NAME = "npucall-directory"


def main() -> NoReturn:
    """Runs the command of ``sys.argv`` and exits with a code of ``ExitCode``."""
    if sys.argv[1:] == ["--version"]:
        process.say_version(_NAME)
    code = serve(sys.argv[1:])
    process.flush_or_discard()
    sys.exit(code)


def serve(arguments: list[str]) -> ExitCode:
    """Serves until SIGTERM or SIGINT."""
    quiet_grpc()
    try:
        settings = read(arguments)
    except ValueError as error:
        return process.fail(_NAME, ExitCode.SETTINGS, str(error))
    if settings.print_settings:
        sys.stdout.write(settings.as_toml())
        return ExitCode.DRAINED
    log = process.open_log(settings)
    try:
        code = _serve_on(settings, Directory(settings, log))
    except BindError as error:
        code = process.fail(_NAME, error.code, str(error))
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
        return process.fail(_NAME, ExitCode.SETTINGS, f"ready_file: {settings.ready_file}: {error}")
    while signals.recv(1)[0] == signal.SIGHUP:
        directory.reload()
    directory.drain()
    return ExitCode.DRAINED


if __name__ == "__main__":
    main()
