"""Where the tensors of a call lie in a lane's memory.

Staging and device memory have the same map, so that one copy takes all that goes in, and one all
that comes out: first what is sent (inputs, then outputs that go in too), then the other outputs.
Inputs whose values nobody reads lie elsewhere, all in one place, which holds zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from npucall_server.devices.unwritten import sent_outputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from npucall.declare.prepare import Prepared
    from npucall.tensors import TensorSpec


class Span(NamedTuple):
    """The storage of one tensor."""

    name: str
    start: int
    length: int


@dataclass(frozen=True)
class MemoryMap:
    """The spans of a call. Tensors without elements have none."""

    sent: tuple[Span, ...]
    outputs: tuple[Span, ...]
    cleared: tuple[Span, ...]
    """What is filled with zeros, since the call does not provably write all of it."""
    copied_in: tuple[int, int]
    """Start and length of all that goes to the device."""
    copied_out: tuple[int, int]
    """Start and length of all that comes from it."""
    starts: Mapping[str, int]
    size: int
    """Bytes in all, without zeros."""
    unread: tuple[str, ...]
    """Inputs whose values nobody reads: they lie in zeros."""
    zeros: int
    """Bytes of the longest of them."""


def memory_map_of(call: Prepared, bytes_taken: Callable[[int], int]) -> MemoryMap:
    """The map of a call; ``bytes_taken``: what a tensor of a length takes on that device."""
    unread = [
        name for name, spec in call.inputs.items() if spec.storage_bytes and name not in call.stored
    ]
    sent = [name for name in call.inputs if name in call.stored]
    go_in = sent_outputs(call)
    both = [name for name in call.outputs if name in go_in]
    written = [name for name in call.outputs if name not in go_in]
    order = (*sent, *both, *written)
    spans, size = _spans({**call.inputs, **call.outputs}, order, bytes_taken)
    is_known = call.operator.reference
    unproven = [name for name in written if not is_known or name in call.unwritten]
    outputs, goes_in = _found(spans, call.outputs), _found(spans, [*sent, *both])
    return MemoryMap(
        sent=goes_in,
        outputs=outputs,
        cleared=_found(spans, unproven),
        copied_in=_reach(goes_in),
        copied_out=_reach(sorted(outputs, key=lambda span: span.start)),
        starts={name: span.start for name, span in spans.items()},
        size=size,
        unread=tuple(unread),
        zeros=max((call.inputs[name].storage_bytes for name in unread), default=0),
    )


def _spans(
    specs: Mapping[str, TensorSpec], order: Iterable[str], bytes_taken: Callable[[int], int]
) -> tuple[dict[str, Span], int]:
    """One behind the other; and where they end."""
    spans, end = {}, 0
    for name in order:
        if length := specs[name].storage_bytes:
            spans[name] = Span(name, end, length)
            end += bytes_taken(length)
    return spans, end


def _found(spans: Mapping[str, Span], names: Iterable[str]) -> tuple[Span, ...]:
    return tuple(spans[name] for name in names if name in spans)


def _reach(spans: Sequence[Span]) -> tuple[int, int]:
    if not spans:
        return 0, 0
    first, last = spans[0], spans[-1]
    return first.start, last.start + last.length - first.start
