"""The command ``npucall-server headers``: operators that a server would find in CANN's headers."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from npucall.declare.declaration import Operator
from npucall_server.commands import command_line
from npucall_server.commands.command_line import Command, table
from npucall_server.devices.cann.headers import Headers, headers_in, read

_DESCRIPTION = (
    "Lists the operators that the headers in a folder (and in its folder level2) declare, such as "
    "$ASCEND_HOME_PATH/include/aclnnop, and says which of them cannot be served, and why. If "
    "several folders declare an operator, the first one counts. The command does not look into "
    "libraries. Exits with 0, or with 2 if a folder has no headers."
)


def run(arguments: Sequence[str]) -> int:
    """Runs the command. Answers its exit code."""
    return command_line.run("headers", Command(_DESCRIPTION, _add_options, _list), arguments)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folder with headers")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def _list(given: argparse.Namespace) -> int:
    for folder in given.folders:
        if fault := _fault(folder):
            raise ValueError(fault)
    headers = read(given.folders)
    files = sum(len(headers_in(folder)) for folder in given.folders)
    command_line.show(_as_json(headers, files) if given.json else _as_text(headers, files))
    return 0


def _fault(folder: Path) -> str:
    try:
        if not folder.is_dir():
            return f"expected a folder of headers, found none at {folder}"
    except OSError as error:
        return f"cannot be read: {error}"
    return "" if headers_in(folder) else f"expected headers (*.h) in {folder}, found none"


def _as_json(headers: Headers, files: int) -> str:
    operators = [
        {
            "name": operator.name,
            "header": operator.source,
            "prototype": operator.prototype,
            "inputs": [parameter.name for parameter in operator.inputs],
            "outputs": [parameter.name for parameter in operator.outputs],
            "in_place": _in_place(operator),
            "attributes": [parameter.name for parameter in operator.attributes],
        }
        for operator in headers.operators.values()
    ]
    excluded = [
        {"name": left_out.name, "header": left_out.source, "reason": left_out.reason}
        for left_out in headers.excluded
    ]
    answer = {"headers": files, "operators": operators, "excluded": excluded}
    return json.dumps(answer, indent=1) + "\n"


def _as_text(headers: Headers, files: int) -> str:
    served, excluded = headers.operators.values(), headers.excluded
    parts = []
    if served:
        title = ("OPERATOR", "INPUTS", "OUTPUTS", "ATTRIBUTES", "HEADER", "READ AND WRITTEN")
        parts.append(table([title, *map(_row, served)]))
    if excluded:
        rows = [(left_out.name, left_out.source, left_out.reason) for left_out in excluded]
        parts.append(table([("NOT SERVED", "HEADER", "REASON"), *rows]))
    parts.append(f"{len(served)} operators, {len(excluded)} not served, of {files} headers\n")
    return "\n".join(parts)


def _row(operator: Operator[Any, Any]) -> tuple[str, ...]:
    parts = (operator.inputs, operator.outputs, operator.attributes)
    counts = [str(len(part)) for part in parts]
    return operator.name, *counts, operator.source, ", ".join(_in_place(operator))


def _in_place(operator: Operator[Any, Any]) -> list[str]:
    """The outputs that the operator also reads."""
    return [output.name for output in operator.outputs if output.in_place]
