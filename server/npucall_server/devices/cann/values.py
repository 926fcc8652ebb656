"""Checks values before a kernel runs, even if they are on the device.

A label that is not a class makes a kernel leave its memory. The values of a handle never change, so
they are read back once at the most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from npucall.compute.evaluate import check_values
from npucall.declare.prepare import Prepared
from npucall.tensors import Buffer
from npucall_server.devices.base import ResidentPart
from npucall_server.devices.cann.resident import DeviceResident


def check(call: Prepared, storages: Mapping[str, Any], pause: Callable[[], None]) -> None:
    """As ``check_values``, for storages that may be parts of handles."""
    names = [name for name in call.checked_inputs if not _is_known(call, name, storages[name])]
    if not names:
        return
    given = {name: _read(call, name, storages[name]) for name in names}
    check_values(call, given, pause)
    if len(call.checked_inputs) == 1:
        for name in names:
            if type(part := storages[name]) is ResidentPart:
                _memory(part).passes(call, name, part.offset)


def _is_known(call: Prepared, name: str, source: object) -> bool:
    """Whether the source is known to pass without being read."""
    if type(source) is not ResidentPart:
        return False
    memory = _memory(source)
    if memory.has_passed(call, name, source.offset):
        return True
    found = memory.range_of(call.inputs[name].dtype, source.offset, source.length)
    allowed = call.operator.values.passes(call.facts)  # type: ignore[union-attr]
    return found is not None and found[0] in allowed and found[1] in allowed


def _read(call: Prepared, name: str, source: Buffer | ResidentPart) -> Buffer:
    if type(source) is not ResidentPart:
        return source  # type: ignore[return-value]
    memory = _memory(source)
    data = memory.read(source.offset, source.length)
    memory.learn(call.inputs[name].dtype, source.offset, data)
    return data


def _memory(part: ResidentPart) -> DeviceResident:
    return part.memory  # type: ignore[return-value]  # what allocate gave
