"""The console script ``npucall-server``. A health probe does not import what serving needs."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Runs the command of ``sys.argv`` and exits with a code of ``ExitCode``."""
    if sys.argv[1:2] == ["health"]:
        from npucall_server import health_command  # noqa: PLC0415  # nothing but grpc

        sys.exit(health_command.run(sys.argv[2:]))
    from npucall_server import __main__ as command  # noqa: PLC0415  # the whole server

    command.main()
