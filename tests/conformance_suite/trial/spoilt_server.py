"""A server process with a fault: ``python -m`` this module, the fault's id, the server's flags."""

from __future__ import annotations

import sys

import pytest

from npucall_server import __main__ as command

from .faults import BY_ID


def main() -> None:
    """Plants the fault of the first argument (``-`` for none), then serves with the others."""
    name, *flags = sys.argv[1:]
    if name != "-":
        BY_ID[name].plant(pytest.MonkeyPatch())
    sys.argv = ["npucall-server", *flags]
    command.main()


if __name__ == "__main__":
    main()
