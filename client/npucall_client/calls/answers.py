"""From the answer to a call to the values that its caller gets. Pure."""

from __future__ import annotations

from collections import namedtuple
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.errors import MessageError, NpucallError, ProtocolError
from npucall.limits import CACHED_CALLS
from npucall.operators import CATALOGUE
from npucall.places import HandlePart, Keep, RegionPart
from npucall.wire import replies
from npucall.wire.messages import split_response
from npucall_client.calls import arrays

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from npucall.dtypes import AnyArray
    from npucall.places import Place
    from npucall.tensors import TensorSpec
    from npucall.wire.messages import Response
    from npucall.wire.replies import Reply
    from npucall_client.calls.arguments import BoundCall

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_CAME = {memoryview}

decode_reply = lru_cache(CACHED_CALLS)(replies.decode_reply)
"""Decodes a reply; cached, since the same call gets the same bytes."""


def checked(bound: BoundCall, response: Response) -> Response:
    """The answer. Raises ProtocolError if it is none, or not that of the call."""
    try:
        reply = decode_reply(response.reply)
    except (NpucallError, ValueError) as error:
        raise ProtocolError(f"response: expected a reply, found: {error}") from None
    as_declared = reply.outputs or bound.lists or _outputs_of(bound.operator)
    if not as_declared or not bound.targets.keys() <= reply.outputs.keys():
        wanted = ", ".join(bound.targets) or "at least one"
        raise ProtocolError(f"response: expected outputs ({wanted}), found {[*reply.outputs]}")
    placed(bound, reply, response.storage)
    return response


def as_before(bound: BoundCall, message: bytes) -> Response | None:
    """The answer in a message that differs from one before only in its numbers; else None.

    That one was checked, so nothing of this one is.
    """
    form = bound.form
    return None if form is None or bound.kept else form.read(message)


def learned(bound: BoundCall, message: bytes, response: Response) -> Response:
    """The checked answer in a message; the next one like it needs no checks."""
    answer = checked(bound, response)
    if bound.form is not None and not bound.kept:
        bound.form.learn(message, answer)
    return answer


def response_to(bound: BoundCall, message: bytes) -> Response:
    """The answer in its message. Raises ProtocolError if it is none, or not that of the call."""
    form = bound.form
    known = None if form is None or bound.kept else form.read(message)  # as ``as_before`` does
    if known is not None:
        return known
    try:
        return learned(bound, message, split_response(message))
    except MessageError as error:
        raise ProtocolError(f"response: {error}") from None


def unpack(
    bound: BoundCall, reply: Reply, places: Sequence[Place], kept: Mapping[str, Any] = _NOTHING
) -> dict[str, Any]:
    """The outputs of an answer by name, each in memory of its own or in the caller's array.

    They are tensors of torch if tensors of torch came in. For outputs that stay on the server,
    ``kept`` has the objects to return. A list of tensors is a list.
    """
    if not (bound.targets or bound.lists or bound.from_torch or bound.kept):
        plain = _plain(reply, places)
        if plain is not None:
            return plain
    outputs = {
        name: kept.get(name)
        if place is None or isinstance(place, HandlePart)
        else _given(bound, name, receive(bound, name, reply.outputs[name], place))
        for name, place in placed(bound, reply, places).items()
    }
    return in_lists(bound, outputs)


def _plain(reply: Reply, places: Sequence[Place]) -> dict[str, AnyArray] | None:
    """Outputs that all came with the answer, each row-major; None for any others."""
    dense = reply.dense
    if dense is None or len(places) != len(dense):
        return None
    outputs = {}
    for (name, shape, dtype, size), came in zip(dense, places, strict=True):
        if type(came) is not memoryview or len(came) != size:
            return None
        array: AnyArray = np.ndarray(shape, dtype, came)
        outputs[name] = array.copy() if came.readonly else array
    return outputs


def _given(bound: BoundCall, name: str, array: AnyArray) -> Any:
    """An output as a tensor of torch if the caller gave such tensors, else as a NumPy array."""
    if name in bound.tensors:
        return bound.tensors[name]
    if bound.from_torch and name not in bound.targets:
        return arrays.to_torch(array)
    return array


def placed(bound: BoundCall, reply: Reply, places: Sequence[Place]) -> dict[str, Place]:
    """Where the outputs of an answer are, by name.

    Raises ProtocolError if a length differs from the reply's, and if the server kept or discarded
    other outputs than it was told to.
    """
    came = not bound.kept and set(map(type, places)) <= _CAME
    found = tuple(map(len, places) if came else map(_length, places, reply.stored_bytes))  # type: ignore[arg-type]
    if found != reply.stored_bytes or len(places) != len(found):
        raise ProtocolError(
            f"response: expected storages of {list(reply.stored_bytes)} bytes, found {list(found)}"
        )
    by_name = dict(zip(reply.stored, places, strict=True))
    for name, place in () if came else by_name.items():
        if place is None or isinstance(place, HandlePart) or name in bound.kept:
            _check_kept(bound, name, place)
    return by_name


def in_lists(bound: BoundCall, by_name: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs by name; the tensors of a list as one list."""
    if not bound.lists:
        return dict(by_name)
    outputs: dict[str, Any] = {}
    for name, value in by_name.items():
        if (listed := name.partition("[")[0]) in bound.lists:
            outputs.setdefault(listed, []).append(value)
        else:
            outputs[name] = value
    for name in bound.lists:
        outputs.setdefault(name, [])  # one without tensors is not in the reply
    return outputs


def _length(place: Place, expected: int) -> int:
    """Bytes of a storage of an answer; a discarded one counts with the bytes that were expected."""
    if isinstance(place, RegionPart | HandlePart):
        return place.length
    return expected if place is None else len(place)


def _check_kept(bound: BoundCall, name: str, place: Place) -> None:
    asked = bound.kept.get(name)
    handle = asked.handle if isinstance(asked, Keep) else None
    found = place.id if isinstance(place, HandlePart) else place
    if asked is None or found != handle:
        raise ProtocolError(
            f"response: expected {name} in {asked or 'the message'}, found it in {place!r}"
        )


def receive(bound: BoundCall, name: str, spec: TensorSpec, place: Place) -> AnyArray:
    """An output; the server may have written it to shared memory itself."""
    if isinstance(place, tuple):
        if bound.placement is None or bound.placement.outputs.get(name) != place:
            raise ProtocolError(f"response: expected the bytes of {name}, found {place}")
        return bound.targets[name]
    assert place is not None  # noqa: S101  # it was looked at
    target = bound.targets.get(name)
    if target is None:
        return arrays.receive(spec, place)
    arrays.write(target, spec, place, keep_layout=bound.keep_layout)
    return target


def value_of(operator: str, outputs: Mapping[str, Any]) -> Any:
    """What ``run`` answers: the only output, or a named tuple of several.

    An output that is null, or masked off, is None there.
    """
    declared = _outputs_of(operator)
    if declared:
        outputs = {name: outputs.get(name) for name in declared}
    elif len(outputs) == 1:
        return next(iter(outputs.values()))
    return _tuple_type(operator, tuple(outputs))(*outputs.values())


@lru_cache(CACHED_CALLS)
def _outputs_of(name: str) -> tuple[str, ...]:
    """The outputs of an operator with several, if an answer may lack some; else none."""
    for operator in CATALOGUE.of_name(name):
        outputs = operator.outputs
        if len(outputs) > 1 and any(output.nullable for output in outputs):
            return tuple(output.name for output in outputs)
    return ()


@lru_cache(64)
def _tuple_type(name: str, fields: tuple[str, ...]) -> Any:
    return namedtuple(name, fields, rename=True)  # noqa: PYI024  # made at run time
