"""Where the tensors of a call lie in a lane's memory.

Staging and device memory have the same map, so that one copy sends everything, and one copy
fetches everything. First come the tensors that are sent (inputs, then outputs that are sent too),
then the other outputs. Inputs whose values no kernel reads share another place, which holds zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from npucall.declare.prepare import Prepared
from npucall.tensors import TensorSpec
from npucall_server.devices.unwritten import sent_outputs


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
    """Spans that are filled with zeros, since the call may leave parts of them unwritten."""
    copied_in: tuple[int, int]
    """Start and length of everything that goes to the device."""
    copied_out: tuple[int, int]
    """Start and length of everything that comes from the device."""
    starts: Mapping[str, int]
    size: int
    """Bytes in total, without the zeros."""
    unread: tuple[str, ...]
    """Inputs whose values no kernel reads: they lie in the zeros."""
    zeros: int
    """Bytes of the longest of these inputs."""


def memory_map_of(call: Prepared, bytes_taken: Callable[[int], int]) -> MemoryMap:
    """The map of a call. ``bytes_taken``: how much a tensor of a length takes on the device."""
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
    """Places tensors one after the other; also answers where the last one ends."""
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
