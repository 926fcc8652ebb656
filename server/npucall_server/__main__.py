"""The command ``npucall-server``. Each of its commands imports only what it needs."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import NoReturn

_COMMANDS = {
    "certificates": "certificates:run",
    "doctor": "doctor:run",
    "headers": "headers:run",
    "health": "health:run",
    "tenants": "access:run_tenants",
    "token": "access:run_token",
}
"""What runs each command but ``serve``."""


def main() -> NoReturn:
    """Runs the command of ``sys.argv`` and exits with a code of ``ExitCode``."""
    command, *arguments = sys.argv[1:] or ["serve"]
    if command in _COMMANDS:
        module, _, name = _COMMANDS[command].partition(":")
        sys.exit(getattr(import_module(f"npucall_server.commands.{module}"), name)(arguments))
    from npucall_server.exits import ExitCode  # noqa: PLC0415  # a health probe has gone by now
    from npucall_server.serving import process  # noqa: PLC0415

    if command == "--version":
        process.say_version("npucall-server")
    from npucall_server.commands.serve import serve  # noqa: PLC0415  # the whole server

    code = serve(arguments if command == "serve" else sys.argv[1:])
    process.flush_or_discard()
    if code is ExitCode.DRAIN_TIMEOUT:
        os._exit(code)  # Python would wait for the threads of calls that were cut; some never end
    sys.exit(code)


if __name__ == "__main__":
    main()
