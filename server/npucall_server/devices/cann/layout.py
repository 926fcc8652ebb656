"""Where the tensors of a call lie in a lane's memory.

Staging and device memory have the same layout, so that one copy takes all that goes in, and one
all that comes out: first inputs whose values nobody reads, then what is sent (inputs, then outputs
that are read too), then the other outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from npucall_server.devices.cann.memory import piece_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from npucall.declare.prepare import Prepared
    from npucall.tensors import TensorSpec


class Piece(NamedTuple):
    """The storage of one tensor."""

    name: str
    start: int
    length: int


@dataclass(frozen=True)
class Layout:
    """The pieces of a call. Tensors without elements have none."""

    sent: tuple[Piece, ...]
    outputs: tuple[Piece, ...]
    cleared: tuple[Piece, ...]
    """What is filled with zeros, since the call does not provably write all of it."""
    copied_in: tuple[int, int]
    """Start and length of all that goes to the device."""
    copied_out: tuple[int, int]
    """Start and length of all that comes from it."""
    starts: Mapping[str, int]
    size: int
    """Bytes in all."""


def layout_of(call: Prepared) -> Layout:
    """The layout of a call."""
    specs: dict[str, TensorSpec] = {**call.inputs, **call.outputs}
    unread = [name for name in call.inputs if name not in call.stored]
    sent = [name for name in call.inputs if name in call.stored]
    both = [name for name in call.outputs if name in call.stored]
    written = [name for name in call.outputs if name not in call.stored]
    pieces, end = {}, 0
    for name in (*unread, *sent, *both, *written):
        if length := specs[name].storage_bytes:
            pieces[name] = Piece(name, end, length)
            end += piece_bytes(length)
    unproven = call.done or not call.operator.reference
    cleared = [*unread, *(written if unproven else ())]
    outputs = _found(pieces, call.outputs)
    goes_in = _found(pieces, [*sent, *both])
    return Layout(
        sent=goes_in,
        outputs=outputs,
        cleared=_found(pieces, cleared),
        copied_in=_reach(goes_in),
        copied_out=_reach(sorted(outputs, key=lambda piece: piece.start)),
        starts={name: piece.start for name, piece in pieces.items()},
        size=end,
    )


def _found(pieces: Mapping[str, Piece], names: Iterable[str]) -> tuple[Piece, ...]:
    return tuple(pieces[name] for name in names if name in pieces)


def _reach(pieces: Sequence[Piece]) -> tuple[int, int]:
    if not pieces:
        return 0, 0
    first, last = pieces[0], pieces[-1]
    return first.start, last.start + last.length - first.start
