"""``npucall reserve`` and ``npucall release``."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from npucall_client.client import connect
from npucall_client.command import Target, TargetOption
from npucall_client.settings import ClientSettings, environment_under

if TYPE_CHECKING:
    from collections.abc import Iterator

_PASSED_ON = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_OF_A_TERMINAL = ("SIGINT", "SIGQUIT")
"""What a terminal sends to the command itself too."""
_NO_COMMAND, _NOT_RUN = 127, 126
_BY_SIGNAL = 128


def reserve(
    seconds: Annotated[float, typer.Argument(help="For how long at most.")],
    command: Annotated[
        list[str], typer.Argument(help="What runs meanwhile, and its arguments, behind --.")
    ],
    wait: Annotated[float, typer.Option(help="Seconds to wait until others have ended.")] = 0.0,
    count: Annotated[int, typer.Option(help="Devices, of a pool.")] = 1,
    target: TargetOption = None,
) -> None:
    """Runs a command that has the device alone: npucall reserve 60 -- python bench.py.

    The command finds the reservation in NPUCALL_RESERVATION and the server in NPUCALL_TARGET, which
    every npucall client reads. The device is released when it ends; its exit code is answered.
    """
    settings = ClientSettings.of(target=target)
    with connect(target) as client, client.reserve(seconds, wait=wait, count=count) as quiet:
        code = _run(command, environment_under(settings.target, quiet.key))
        if not quiet.remaining:
            print("npucall: the reservation had ended before the command", file=sys.stderr)
    raise typer.Exit(code)


def release(target: Target = None) -> None:
    """Ends the reservation of whoever has one; for admins."""
    with connect(target) as client:
        client.release_reservation()


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Runs a command, which gets the signals of this process, and answers its exit code."""
    try:
        process = subprocess.Popen(command, env=environment)  # noqa: S603  # what the user asked for
    except FileNotFoundError as error:
        print(f"npucall: {error}", file=sys.stderr)
        return _NO_COMMAND
    except OSError as error:
        print(f"npucall: {error}", file=sys.stderr)
        return _NOT_RUN
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
