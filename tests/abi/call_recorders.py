"""Calls recorders through ctypes, and compares what they recorded with what it handed over.

``python call_recorders.py LIBRARY TABLE``: TABLE is JSON, ``[name, result, [parameter, ...]]`` for
each function of the library's table, types by their names in ctypes. It prints, as JSON, the
functions that recorded something else, each with the first difference. It needs nothing but Python
and ctypes, so that it runs on a machine that is made for it.
"""

from __future__ import annotations

import ctypes
import json
import struct
import sys
from pathlib import Path
from typing import Any

_MOST = 64
_POINTER = 0x5A5A5A5A00000001
_ANSWERS = {
    None: None,
    ctypes.c_bool: True,
    ctypes.c_float: -2.5,
    ctypes.c_double: -2.5,
    ctypes.c_void_p: _POINTER,
}
_NUMBER = -7


class _Record(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_uint64),
        ("sizes", ctypes.c_uint64 * _MOST),
        ("values", ctypes.c_uint64 * _MOST),
    )


def _type_named(name: str | None) -> Any:
    if name is None:
        return None
    if name.startswith("LP_"):
        return ctypes.POINTER(getattr(ctypes, name.removeprefix("LP_"), ctypes.c_void_p))
    return getattr(ctypes, name)


def _value(kind: Any, number: int) -> tuple[Any, bytes]:
    """A value that no other parameter has, and its bytes, none of which is 0."""
    if kind is ctypes.c_bool:
        return number % 2 == 0, bytes([number % 2 == 0])
    if kind in (ctypes.c_float, ctypes.c_double):
        return -1.5 - number, struct.pack(f"<{kind._type_}", -1.5 - number)
    if kind is ctypes.c_char_p:
        text = b"text %d" % number
        return text, struct.pack("<Q", ctypes.cast(text, ctypes.c_void_p).value or 0)
    data = bytes([0x80 + number]) * ctypes.sizeof(kind)
    if issubclass(kind, ctypes._Pointer):
        return ctypes.cast(int.from_bytes(data, "little"), kind), data
    return kind.from_buffer_copy(data).value, data


def _difference(raw: Any, record: _Record) -> str | None:
    given = [_value(kind, number) for number, kind in enumerate(raw.argtypes)]
    answer = raw(*(value for value, _ in given))
    if record.count != len(given):
        return f"expected {record.count} parameters, found {len(given)}"
    for number, (_, data) in enumerate(given):
        seen = record.values[number].to_bytes(8, "little")[: record.sizes[number]]
        if seen != data:
            return f"parameter {number}: expected {data.hex()}, found {seen.hex()}"
    right = _ANSWERS.get(raw.restype, _NUMBER)
    return None if answer == right else f"result: expected {right!r}, found {answer!r}"


def _main(library: str, table: str) -> None:
    handle = ctypes.CDLL(library)
    listed = json.loads(Path(table).read_text())
    addresses = (ctypes.c_void_p * len(listed)).in_dll(handle, "npucall_table")
    record = _Record.in_dll(handle, "npucall_record")
    wrong = {}
    for address, (name, result, parameters) in zip(addresses, listed, strict=True):
        raw = handle._FuncPtr(address)
        raw.argtypes = tuple(map(_type_named, parameters))
        # ctypes reads the text that a char* leads to, and here it leads nowhere.
        raw.restype = _type_named("c_void_p" if result == "c_char_p" else result)
        if (difference := _difference(raw, record)) is not None:
            wrong[name] = difference
    print(json.dumps(wrong))


if __name__ == "__main__":
    _main(*sys.argv[1:])
