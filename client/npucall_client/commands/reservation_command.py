"""``npucall reserve`` and ``npucall release``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from npucall_client.client import connect
from npucall_client.commands.console import Target, TargetOption, the_target
from npucall_client.commands.run_child import ChildCommand, run_child
from npucall_client.settings import ClientSettings, environment_with


def reserve(
    seconds: Annotated[
        float, typer.Argument(metavar="SECONDS", help="How long you need the device at most.")
    ],
    command: ChildCommand,
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
