"""Ports of a host's servers: the first free one of a range."""

from __future__ import annotations

import errno
import re
import socket
from typing import NamedTuple, Self

_HIGHEST = 65_535


class Ports(NamedTuple):
    """Ports from ``first`` to ``last``, both counted."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads FIRST-LAST. Raises ValueError."""
        found = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", text)
        ports = cls(int(found[1]), int(found[2])) if found else cls(0, 0)
        if not 0 < ports.first <= ports.last <= _HIGHEST:
            raise ValueError(f"ports: expected FIRST-LAST, such as 50051-50082, found {text!r}")
        return ports

    def free(self, host: str, wish: int) -> int:
        """A free port on this address of this host: ``wish``, or the next free one.

        Raises OSError if there is none, or the host has no such address.
        """
        count = self.last - self.first + 1
        for step in range(count):
            port = self.first + (wish - self.first + step) % count
            if _is_free(host, port):
                return port
        raise OSError(f"ports: expected a free one of {self.first}-{self.last}, found none")


def _is_free(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True
