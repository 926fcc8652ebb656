"""What it takes to import the client, beside the libraries under it: CPU of fresh processes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from figures import Figure, Series, compared
from service import in_turn

if TYPE_CHECKING:
    from collections.abc import Iterator

IMPORTED, CONNECTS = "import npucall_client, CPU", "import npucall_client, CPU, with connect"
_LIBRARIES = "import numpy, ml_dtypes, grpc, google.protobuf, pydantic"
_PROGRAMS = {
    IMPORTED: "import npucall_client",
    CONNECTS: "import npucall_client; npucall_client.connect",
    "the libraries": _LIBRARIES,
}


@dataclass(frozen=True)
class ImportCase:
    """Names of the client are loaded where somebody asks for them: alone, and with ``connect``."""

    rounds: int = 7

    def text(self) -> str:
        """How the names of its series begin."""
        return "import npucall_client"

    def series(self) -> list[Series]:
        """Both, as ratios to the libraries."""
        return [Series(name, "lower", "ms", "CPU") for name in (IMPORTED, CONNECTS)]

    def figures(self) -> Iterator[Figure]:
        """Measures."""
        for program in _PROGRAMS.values():
            _milliseconds(program)  # whatever is to be compiled is compiled then
        taken: dict[str, list[float]] = {name: [] for name in _PROGRAMS}
        for name in (name for index in range(self.rounds) for name in in_turn([*taken], index)):
            taken[name].append(_milliseconds(_PROGRAMS[name]))
        for series in self.series():
            yield compared(series, taken[series.name], taken["the libraries"])


def _milliseconds(program: str) -> float:
    before = os.times()
    subprocess.run([sys.executable, "-c", program], check=True)
    after = os.times()
    used = after.children_user + after.children_system
    return (used - before.children_user - before.children_system) * 1e3
