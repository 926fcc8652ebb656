"""The command's report of a pool: a row a server, as a table or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from npucall_pool.keeper import Phase
from npucall_pool.plan import Host

NO_ANSWER = "no answer"
_HEADINGS = ("server", "host", "address", "device", "state", "starts", "why")


class Row(NamedTuple):
    """A server and its keeper."""

    server: str
    host: str
    address: str
    device: str
    state: str
    """A ``Phase``, or ``NO_ANSWER``."""
    starts: int
    why: str

    @property
    def serves(self) -> bool:
        """Whether its keeper says that it takes calls."""
        return self.state == Phase.SERVING


def rows_of(answers: Mapping[str, Mapping[str, Any] | None], hosts: Sequence[Host]) -> list[Row]:
    """A row for each keeper that was asked."""
    return [_row(name, answer, hosts) for name, answer in answers.items()]


def _row(name: str, answer: Mapping[str, Any] | None, hosts: Sequence[Host]) -> Row:
    if answer is None:
        host = next((each for each in hosts if name.startswith(f"{each.address}-")), None)
        return Row(name, host.hostname if host else "", "", "", NO_ANSWER, 0, _why_not(host))
    return Row(
        name, answer["hostname"], answer["address"], answer["device"], answer["phase"],
        answer["starts"], answer["why"],
    )  # fmt: skip


def _why_not(host: Host | None) -> str:
    """The likely reason why a keeper does not answer, as far as Ray knows."""
    if host is None:
        return "Ray has not started its keeper"
    if not host.is_alive:
        return "its host is gone: run `ray start` there again"
    return "Ray has not started its keeper: the host's devices may be given to others"


def as_table(table: Iterable[Row]) -> str:
    """The rows as text in columns."""
    lines = [_HEADINGS, *(tuple(map(str, row)) for row in table)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def as_json(table: Iterable[Row]) -> str:
    """The rows as a list of JSON objects."""
    return json.dumps([row._asdict() for row in table], indent=2)
