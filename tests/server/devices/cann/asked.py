"""Calls for the CANN device, each with what it has to answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npucall.compute.evaluate import run as evaluate
from npucall.declare.call import Call, element
from npucall.declare.prepare import Prepared, prepare
from npucall.dtypes import BY_NUMPY
from npucall.tensors import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from npucall.dtypes import AnyArray
    from npucall_server.devices.cann.device import CannDevice


class Strided(NamedTuple):
    """A tensor whose elements lie in a storage as its spec says."""

    spec: TensorSpec
    storage: bytes


class Given(NamedTuple):
    """A tensor of which only the spec is sent: an output, or an input that nobody reads."""

    spec: TensorSpec


class Asked(NamedTuple):
    """A call, its storages, and the storages that it has to answer."""

    call: Prepared
    storages: dict[str, bytes]
    answers: list[bytes]


def spec_of(array: AnyArray) -> TensorSpec:
    return TensorSpec(BY_NUMPY[array.dtype], array.shape)


def like(array: AnyArray) -> Given:
    """An output of the same shape and dtype."""
    return Given(spec_of(array))


def declared(device: CannDevice, name: str, **arguments: Any) -> Asked:
    """A call of an operator that npucall declares; its formula says the answer."""
    call, storages = _prepared(device, name, arguments)
    return Asked(call, storages, [bytes(answer) for answer in evaluate(call, storages)])


def installed(device: CannDevice, name: str, *answers: AnyArray, **arguments: Any) -> Asked:
    """A call of an operator that a header declares; ``answers`` are its outputs."""
    return Asked(*_prepared(device, name, arguments), [answer.tobytes() for answer in answers])


def _prepared(
    device: CannDevice, name: str, given: Mapping[str, Any]
) -> tuple[Prepared, dict[str, bytes]]:
    operator = device.catalogue.find(name)
    arguments = {key: _argument(value) for key, value in given.items()}
    storages = dict(pair for key, value in given.items() for pair in _storages(key, value))
    call = Call(operator, arguments, tuple(storages))
    return prepare(call, device.product, device.catalogue), storages


def _argument(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_argument(each) for each in value)
    if isinstance(value, np.ndarray):
        return spec_of(value)
    return value.spec if isinstance(value, (Strided, Given)) else value


def _storages(name: str, value: Any) -> Iterator[tuple[str, bytes]]:
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from _storages(element(name, index), each)
    elif isinstance(value, np.ndarray):
        yield name, value.tobytes()
    elif isinstance(value, Strided):
        yield name, value.storage
