"""``npucall reserve`` and ``npucall release``."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from npucall_client.client import connect
from npucall_client.commands.console import Target, TargetOption, the_target
from npucall_client.commands.exits import ExitCode
from npucall_client.settings import ClientSettings, environment_with

_PASSED_ON = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_OF_A_TERMINAL = ("SIGINT", "SIGQUIT")
"""What a terminal sends to the command itself too."""
_BY_SIGNAL = 128


def reserve(
    seconds: Annotated[
        float, typer.Argument(metavar="SECONDS", help="How long you need the device at most.")
    ],
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND", help="The command and its arguments; -- stands before it."
        ),
    ],
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", help="Wait so long for others to end.")
    ] = 0.0,
    count: Annotated[
        int, typer.Option(metavar="NUMBER", help="With a pool: reserve so many devices.")
    ] = 1,
    target: TargetOption = None,
) -> None:
    """Runs a command that has the device for itself.

    The command finds the reservation in NPUCALL_RESERVATION and the server in NPUCALL_TARGET. Every
    npucall client reads both. When the command ends, the device is free again. The exit code is the
    command's; 126 and 127 mean that it could not be run, 128 + N that signal N ended it.

    Examples:
        npucall reserve 60 -- python bench.py
        npucall reserve 600 --wait 300 --target npu-host:50051 -- python bench.py
    """
    settings = ClientSettings.of(target=target)
    with connect(target) as client, client.reserve(seconds, wait=wait, count=count) as quiet:
        code = run_child(command, environment_with(target=settings.target, reservation=quiet.key))
        if not quiet.remaining:
            print("npucall: the reservation had ended before the command", file=sys.stderr)
    raise typer.Exit(code)


def release(target: Target = None, target_option: TargetOption = None) -> None:
    """Ends a reservation, whoever has it. Only admins may.

    Examples:
        npucall release --target npu-host:50051
    """
    with connect(the_target(target, target_option)) as client:
        client.release_reservation()


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
