"""Further looks at a call that has been answered: each is one way in which a server may be wrong.

A look gets the call, the expected answer and the answer that came. It asks the server as often as
it needs, and returns the problems that it found. ``LOOKS`` has the looks of each block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from npucall_conformance.running.looks.crowd import crowd, repeated
from npucall_conformance.running.looks.observation import Observation
from npucall_conformance.running.looks.paths import by_every_path

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LOOKS", "Look", "Observation"]

Look: TypeAlias = Callable[[Observation], list[str]]
"""Returns one sentence for each problem; none if nothing is wrong."""

LOOKS: Mapping[str, tuple[Look, ...]] = {
    "determinism": (repeated,),
    "crowd": (crowd,),
    "paths": (by_every_path,),
}
"""The looks of each block."""
