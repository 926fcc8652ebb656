"""The command ``npucall-server headers``: operators that a server would find in CANN's headers."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npucall_server.devices.cann.headers import Headers, headers_in, read
from npucall_server.exits import ExitCode

if TYPE_CHECKING:
    from npucall.declare.declaration import Operator

_DESCRIPTION = (
    "Lists the operators that the headers in a folder (and in its folder level2) declare, such as "
    "$ASCEND_HOME_PATH/include/aclnnop, and says which of them cannot be served, and why. If "
    "several folders declare an operator, the first one counts. The command does not look into "
    "libraries. Exits with 0, or with 2 if a folder has no headers."
)


def run(arguments: Sequence[str]) -> int:
    """Runs the command. Answers its exit code."""
    parser = argparse.ArgumentParser("npucall-server headers", description=_DESCRIPTION)
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folder with headers")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    given = parser.parse_args(arguments)
    for folder in given.folders:
        if fault := _fault(folder):
            sys.stderr.write(f"npucall-server: {fault}\n")
            return ExitCode.SETTINGS
    headers = read(given.folders)
    files = sum(len(headers_in(folder)) for folder in given.folders)
    _print(_as_json(headers, files) if given.json else _as_text(headers, files))
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
        parts.append(_table([title, *map(_row, served)]))
    if excluded:
        rows = [(left_out.name, left_out.source, left_out.reason) for left_out in excluded]
        parts.append(_table([("NOT SERVED", "HEADER", "REASON"), *rows]))
    parts.append(f"{len(served)} operators, {len(excluded)} not served, of {files} headers\n")
    return "\n".join(parts)


def _row(operator: Operator[Any, Any]) -> tuple[str, ...]:
    parts = (operator.inputs, operator.outputs, operator.attributes)
    counts = [str(len(part)) for part in parts]
    return operator.name, *counts, operator.source, ", ".join(_in_place(operator))


def _in_place(operator: Operator[Any, Any]) -> list[str]:
    """The outputs that the operator also reads."""
    return [output.name for output in operator.outputs if output.in_place]


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their longest text, aligned to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "".join(f"{line}\n" for line in lines)


def _print(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as head, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
