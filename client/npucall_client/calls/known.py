"""Calls that a client bound before: the next one like them needs only its arrays. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npucall.declare.call import element
from npucall.dtypes import BY_NUMPY, DType
from npucall.limits import CACHED_CALL_BYTES, CACHED_CALL_VALUES, MIB
from npucall.wire.caches import BoundedCache
from npucall.wire.messages import (
    KnownMessage,
    Response,
    known_answer,
    known_request,
)
from npucall_client.calls import arguments, arrays
from npucall_client.calls.arguments import BoundCall
from npucall_client.calls.tensors import HeldTensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from npucall.declare.declaration import Operator
    from npucall_client.calls.tensors import Home

_FORMS_BYTES = 8 * MIB
"""Of all forms of a client, about."""
_FORM_BYTES, _BYTES_A_BYTE, _KEY_BYTES = 4096, 4, 64
"""About what a form takes, and what more for each byte of its call and each part of its key."""
_ANSWERS, _REPLY_BYTES = 8, 512
"""Most answers that a form knows, and their longest reply. They differ in who gave them."""
_PLAIN = frozenset({bool, int, str, type(None)})
"""What is a part of a key as it is."""


class CallForm:
    """All of a call but its bytes, and what came with its answers."""

    __slots__ = ("_answers", "_before", "call", "from_torch", "request", "sent")

    def __init__(self, bound: BoundCall, sent: Sequence[_Sent]) -> None:
        self.call, self.from_torch, self.sent = bound.call, bound.from_torch, sent
        sizes = [0 if isinstance(each, tuple) else len(each) for each in bound.storage.values()]
        self.request = None if bound.held else known_request(bound.call, sizes)
        """Its requests, if all of its arrays travel; None if each has to be written anew."""
        self._answers: dict[bytes, _Answer] = {}
        self._before = 0
        """The length of what stays at the beginning of its answers; it leads to the rest."""

    def read(self, message: bytes) -> Response | None:
        """The answer in a message that differs from one before only in its numbers; else None."""
        known = self._answers.get(bytes(message[: self._before]))
        if known is None or (data := known.message.split(message)) is None:
            return None
        timings, *storage = data
        return Response(known.reply, bytes(timings), storage)  # type: ignore[arg-type]

    def learn(self, message: bytes, answer: Response) -> None:
        """Takes an answer, so that others like it can be read."""
        if len(self._answers) >= _ANSWERS or len(answer.reply) > _REPLY_BYTES:
            return
        known = known_answer(message, answer)
        if known is not None:
            if not self._answers:
                self._before = len(known.begins)
            self._answers[known.begins] = _Answer(known, answer.reply)


class _Answer(NamedTuple):
    message: KnownMessage
    reply: bytes


class _Sent(NamedTuple):
    """How a tensor travels that was given at this place, those of lists one by one."""

    name: str
    place: int
    way: int | None
    """As ``arrays.reach_of`` says; or one of those below."""


_DENSE, _VIEWED, _HELD = -1, -2, -3


class KnownCalls:
    """The forms of the calls that a client has bound."""

    def __init__(self) -> None:
        self._forms: BoundedCache[tuple[Any, ...], CallForm] = BoundedCache(_FORMS_BYTES)

    def bind(  # noqa: PLR0913  # all that makes a call
        self,
        operator: Operator[Any, Any],
        variant: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        send_unread: bool = False,
        home: Home | None = None,
        within: object = None,
    ) -> BoundCall:
        """``arguments.bind``, for a call whose outputs and layout are left to the client.

        What it does with an argument depends on nothing but what is in the key: types, shapes,
        strides, values of attributes. What a session holds is looked up each time.
        """
        key: list[Any] = [operator, variant, send_unread, len(args), *kwargs]
        given: list[Any] = []
        is_known = operator.reference and _add(key, given, args)
        if is_known and kwargs:
            is_known = _add(key, given, kwargs.values())
        form = self._forms.get(tuple(key)) if is_known else None
        if form is not None:
            return _bound(form, operator.name, variant, given, home, within)
        bound = arguments.bind(
            operator, variant, args, kwargs, {},
            keep_layout=False, send_unread=send_unread, home=home, within=within,
        )  # fmt: skip
        if (
            is_known
            and _is_short(bound, key)
            and not (bound.is_weak or any(map(_is_converted, given)))
        ):
            names = _names(operator.bind(args, kwargs))
            bound.form = form = CallForm(bound, list(_sent(bound, names, given)))
            size = _FORM_BYTES + _BYTES_A_BYTE * len(bound.call) + _KEY_BYTES * len(key)
            self._forms.keep(tuple(key), form, size)
        return bound


def _is_short(bound: BoundCall, key: Sequence[Any]) -> bool:
    return len(bound.call) <= CACHED_CALL_BYTES and len(key) <= CACHED_CALL_VALUES


def _is_converted(value: Any) -> bool:
    """Whether it is an array that travels as another dtype."""
    return type(value) is np.ndarray and value.dtype not in BY_NUMPY


def _add(key: list[Any], given: list[Any], values: Iterable[Any]) -> bool:
    """Adds arguments to a key, and their tensors to what is given; False if a key cannot tell."""
    for value in values:
        kind = type(value)
        if kind is np.ndarray:
            key += (value.dtype, value.shape, value.strides)
            given.append(value)
        elif kind in _PLAIN:
            key += (kind, value)
        elif kind is float:
            key += (float, repr(value))  # 0.0 and -0.0 are equal, and not the same
        elif kind is list or kind is tuple:
            key += (kind, len(value))
            if any(type(each) in (list, tuple) for each in value) or not _add(key, given, value):
                return False
        elif isinstance(value, np.generic):
            key += (value.dtype, value.tobytes())  # it may be an attribute
            given.append(np.asarray(value))
        elif isinstance(value, type | np.dtype | DType):
            key += (np.dtype, value)
        elif isinstance(value, HeldTensor):
            key += (HeldTensor, value.tensor, value.from_torch)
            given.append(value)
        else:
            return False
    return True


def _bound(  # noqa: PLR0913  # all that makes a call
    form: CallForm,
    operator: str,
    variant: str,
    given: Sequence[Any],
    home: Home | None,
    within: object,
) -> BoundCall:
    """The call of a form, with these arrays."""
    bound = BoundCall(operator, form.call, {}, variant, home, within)
    bound.form = form
    if form.from_torch:
        bound.from_torch = True
    storage = bound.storage
    for name, index, way in form.sent:
        if way == _DENSE:
            storage[name] = given[index].data.cast("B")
        elif way == _VIEWED:
            storage[name] = arrays.memory(given[index])
        elif way == _HELD:
            arguments.hold(bound, name, given[index])
        else:
            storage[name] = arrays.reached(given[index], way)
    return bound


def _names(given: Mapping[str, Any]) -> Iterator[str]:
    """The names of the tensors among the arguments, those of lists one by one."""
    for name, value in given.items():
        if isinstance(value, np.ndarray | np.generic | HeldTensor):
            yield name
        elif isinstance(value, list | tuple):
            for index, each in enumerate(value):
                if isinstance(each, np.ndarray | np.generic | HeldTensor):
                    yield element(name, index)


def _sent(bound: BoundCall, names: Iterable[str], given: Sequence[Any]) -> Iterator[_Sent]:
    """How each tensor of a call travels that does."""
    for index, (name, value) in enumerate(zip(names, given, strict=True)):
        if name in bound.storage:
            yield _Sent(name, index, _way(value))


def _way(value: Any) -> int | None:
    if isinstance(value, HeldTensor):
        return _HELD
    if not value.flags.c_contiguous:
        return arrays.reach_of(value)
    return _DENSE if arrays.is_cast(value) else _VIEWED
