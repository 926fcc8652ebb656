"""A command that another one runs: it has this process's signals, and its exit code counts."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from npucall_client.commands.exits import ExitCode

_PASSED_ON = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_OF_A_TERMINAL = ("SIGINT", "SIGQUIT")
"""What a terminal sends to the command itself too."""
_BY_SIGNAL = 128

ChildCommand = Annotated[
    list[str],
    typer.Argument(metavar="COMMAND", help="The command and its arguments; -- stands before it."),
]


def run_child(command: list[str], environment: dict[str, str]) -> int:
    """Runs a command, which gets the signals of this process, and answers its exit code."""
    try:
        process = subprocess.Popen(command, env=environment)  # noqa: S603  # what the user asked for
    except FileNotFoundError as error:
        print(f"npucall: {error}", file=sys.stderr)
        return ExitCode.NO_COMMAND
    except OSError as error:
        print(f"npucall: {error}", file=sys.stderr)
        return ExitCode.NOT_RUN
    with _signals_of(process):
        code = process.wait()
    return code if code >= 0 else _BY_SIGNAL - code


@contextmanager
def _signals_of(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Passes signals on to a process."""
    at_a_terminal = sys.stdin is not None and sys.stdin.isatty()

    def passed_on(number: int, _: object) -> None:
        if not at_a_terminal or signal.Signals(number).name not in _OF_A_TERMINAL:
            process.send_signal(number)

    numbers = [getattr(signal, name) for name in _PASSED_ON if hasattr(signal, name)]
    before = {number: signal.signal(number, passed_on) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
