"""Arguments of a Python call <-> a call of the contract and its storage. Pure."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from npucall import calls, replies
from npucall.dtypes import BY_NUMPY
from npucall.errors import InternalError
from npucall.operators.attributes import attribute_value
from npucall.operators.spec import Attribute, Operator, Scalar
from npucall.tensors import TensorSpec
from npucall_client import arrays

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from npucall.dtypes import AnyArray
    from npucall.operators.spec import Argument, Parameter
    from npucall.replies import Reply
    from npucall.tensors import Buffer


@dataclass
class Request:
    """What goes to a device, and where its answer goes."""

    operator: str
    call: bytes = b""
    storage: dict[str, Buffer] = field(default_factory=dict)
    """By argument, in the order in which it travels."""
    targets: dict[str, AnyArray] = field(default_factory=dict)
    """The caller's own arrays, by output."""
    keep_layout: bool = False


def bind(  # noqa: PLR0913  # all that makes a call
    operator: Operator[Any, Any] | str,
    variant: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    *,
    keep_layout: bool,
) -> Request:
    """The request that calls an operator with these arguments.

    ``operator`` is a declared one, or a name that only the server knows; then arguments go by
    name, and what they are follows from their Python types. ``outputs`` has the caller's own arrays
    to write to, or None for a null pointer.
    Raises TypeError where a Python call would, and the errors of the contract for what cannot
    travel.
    """
    declared = operator if isinstance(operator, Operator) else None
    name = declared.name if declared else str(operator)
    request = Request(name, keep_layout=keep_layout)
    items: list[tuple[Any, ...]] = []
    for key, value in _by_name(operator, args, kwargs).items():
        parameter = declared.by_name[key] if declared else None
        if value is None:
            items.append((key, None, ""))
        elif _is_attribute(parameter, value):
            items.append((key, *_attribute(key, parameter, value)))
        else:
            items.append(_input(request, key, arrays.as_array(key, value)))
    for key, value in outputs.items():
        items.append((key, None, "") if value is None else _output(request, key, value))
    request.call = _encode(name, variant, tuple(items))
    return request


def unpack(request: Request, reply: Reply, storage: Sequence[Buffer]) -> dict[str, AnyArray]:
    """The outputs of an answer by name, each in memory of its own or in the caller's array."""
    expected = [reply.outputs[name].storage_bytes for name in reply.stored]
    if list(map(len, storage)) != expected:
        raise InternalError(
            f"response: expected storages of {expected} bytes, found {list(map(len, storage))}"
        )
    outputs = {}
    for name, data in zip(reply.stored, storage, strict=True):
        spec = reply.outputs[name]
        target = request.targets.get(name)
        if target is None:
            outputs[name] = arrays.receive(spec, data)
        else:
            arrays.write(target, spec, data, keep_layout=request.keep_layout)
            outputs[name] = target
    return outputs


def value_of(operator: str, outputs: Mapping[str, AnyArray]) -> Any:
    """What ``run`` answers: the only output, or a named tuple of several."""
    if len(outputs) == 1:
        return next(iter(outputs.values()))
    return _tuple_type(operator, tuple(outputs))(*outputs.values())


decode_reply = lru_cache(1024)(replies.decode_reply)
"""The reply in its bytes; kept, since the same call gets the same bytes."""


def _by_name(
    operator: Operator[Any, Any] | str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Mapping[str, Any]:
    if isinstance(operator, Operator):
        return operator.bind(args, kwargs)
    if args:
        raise TypeError(f"{operator} is not declared here, so its arguments go by name")
    return kwargs


def _is_attribute(parameter: Parameter | None, value: object) -> bool:
    if parameter is None:
        return isinstance(
            value, bool | int | float | str | list | tuple | Scalar
        ) and not isinstance(value, np.generic)
    return isinstance(parameter, Attribute)


def _attribute(name: str, parameter: Parameter | None, value: Any) -> tuple[Any, ...]:
    """The value with its spelling, without which True and 1, or 0.0 and -0.0, would be one key."""
    declared = parameter if isinstance(parameter, Attribute) else None
    converted = attribute_value(name, declared, value)
    return converted, repr(converted)


def _input(request: Request, name: str, array: AnyArray) -> tuple[Any, ...]:
    sent = arrays.send(name, array, keep_layout=request.keep_layout)
    request.storage[name] = sent.storage
    return (name, True, sent.dtype, sent.shape, sent.strides, sent.storage_shape)


def _output(request: Request, name: str, value: Any) -> tuple[Any, ...]:
    target = arrays.as_target(name, value)
    request.targets[name] = target
    if request.keep_layout:
        return _input(request, name, target)
    return (name, False, target.dtype, target.shape, None, None)


@lru_cache(1024)
def _encode(operator: str, variant: str, items: tuple[tuple[Any, ...], ...]) -> bytes:
    """The bytes of a call, from values that can be a key; kept, since callers repeat calls."""
    arguments: dict[str, Argument] = {}
    stored = []
    for name, *item in items:
        if len(item) == 2:  # noqa: PLR2004  # an attribute, or absent
            arguments[name] = item[0]
            continue
        is_stored, dtype, shape, strides, storage_shape = item
        arguments[name] = TensorSpec(
            BY_NUMPY[dtype], shape, strides, 0, storage_shape, name=name
        )  # fmt: skip
        if is_stored:
            stored.append(name)
    return calls.encode(operator, variant, arguments, tuple(stored))


@lru_cache(64)
def _tuple_type(name: str, fields: tuple[str, ...]) -> Any:
    return namedtuple(name, fields)  # noqa: PYI024  # made at run time
