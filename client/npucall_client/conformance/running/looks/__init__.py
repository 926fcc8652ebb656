"""Further looks at a call that has been answered: each is one way in which a server may be wrong.

A look gets the call, what was expected and what came, asks the server as often as it likes, and
says what it found wrong. ``LOOKS`` has those of each block; a case may ask for one by itself.

Its modules, from the top::

    paths     the same call by every path
    crowd     callers who ask at once
    repeated  the same bits again, alone and among others
    seen      what a look gets
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from npucall_client.conformance.running.looks.crowd import crowd
from npucall_client.conformance.running.looks.paths import by_every_path
from npucall_client.conformance.running.looks.repeated import repeated
from npucall_client.conformance.running.looks.seen import Seen

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LOOKS", "Look", "Seen"]

Look: TypeAlias = Callable[[Seen], list[str]]
"""What is wrong, a sentence each; nothing if all is well."""

LOOKS: Mapping[str, tuple[Look, ...]] = {
    "determinism": (repeated,),
    "crowd": (crowd,),
    "paths": (by_every_path,),
}
"""By block."""
