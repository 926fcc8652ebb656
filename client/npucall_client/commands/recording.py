"""``npucall record``: a command whose calls go into a file."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from npucall.errors import SettingError
from npucall.texts import size
from npucall.wire.recordings import MOST_BYTES, lacks_calls, recorded
from npucall.wire.rpcs import EXECUTE
from npucall_client.commands.console import TargetOption
from npucall_client.commands.exits import ExitCode
from npucall_client.commands.run_child import ChildCommand, run_child
from npucall_client.settings import ClientSettings, environment_with


def record(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help=f"A new file, of {size(MOST_BYTES)} at most.")
    ],
    command: ChildCommand,
    target: TargetOption = None,
) -> None:
    """Runs a command and records its calls.

    The file has the calls of all npucall clients in it, with their arrays and answers. Send it with
    a report of a bug, make the calls again with npucall rerun, or let it answer them: the target
    recorded:FILE. It has no tokens and no certificates. The exit code is the command's, or 1 where
    that is 0 and the file lacks calls.

    Examples:
        npucall record calls.rec -- python train.py
        npucall record calls.rec --target npu-host:50051 -- python -m pytest
    """
    try:
        file.touch(0o600, exist_ok=False)
    except OSError as error:
        raise SettingError(f"{file}: expected to make this file: {error.strerror}") from None
    told = {} if target is None else {"target": ClientSettings.of(target=target).target}
    code = run_child(command, environment_with(record=str(file.absolute()), **told))
    try:
        whole = _said(file)
    except OSError as error:
        print(f"npucall: {file}: expected the recorded calls: {error.strerror}", file=sys.stderr)
        whole = False
    raise typer.Exit(code or int(ExitCode.DONE if whole else ExitCode.FAILED))


def _said(file: Path) -> bool:
    """Says what is in the file. Whether that is all; raises OSError if it is gone."""
    held = file.stat().st_size
    found = recorded(file) if held else ()
    calls = Counter(call.operator for call in found if call.method == EXECUTE.name)
    print(f"npucall: recorded {calls.total()} calls, {size(held)}", file=sys.stderr)
    for operator, count in sorted(calls.items()):
        print(f"  {count} of {operator}", file=sys.stderr)
    if lacking := lacks_calls(file):
        room = f"the file has {size(MOST_BYTES)} at most, and what is free on the disk"
        print(f"npucall: {file} lacks calls, which had no room: {room}", file=sys.stderr)
    return not lacking
