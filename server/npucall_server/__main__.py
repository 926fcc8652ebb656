"""The command ``npucall-server``. Each of its commands imports only what it needs."""

from __future__ import annotations

import gc
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
"""What runs each command but ``serve`` and ``settings``."""


def main() -> NoReturn:
    """Runs the command of ``sys.argv`` and exits with a code of ``ExitCode``."""
    command, *arguments = sys.argv[1:] or ["serve"]
    if command in _COMMANDS:
        module, _, name = _COMMANDS[command].partition(":")
        sys.exit(getattr(import_module(f"npucall_server.commands.{module}"), name)(arguments))
    gc.disable()  # what is made until the server starts stays: to look for garbage costs time
    from npucall_server.commands import serve  # noqa: PLC0415  # the whole server

    serve.main(sys.argv[1:])


if __name__ == "__main__":
    main()
