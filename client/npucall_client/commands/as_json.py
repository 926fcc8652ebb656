"""What commands print with ``--json``.

Where the contract has a message for it, it is that message: each field by its name in the .proto,
also where it has its default, but for messages and ``optional`` fields that are absent. It is what
protobuf's ``json_format`` reads; integers of 64 bits are numbers.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from npucall.dtypes import AnyArray

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, with everything as numbers.")]
_NO_NUMBERS = {math.inf: "Infinity", -math.inf: "-Infinity"}


def print_json(value: Any) -> None:
    """Prints a value that ``plain`` takes."""
    typer.echo(json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False))


def data_of(message: Message) -> dict[str, Any]:
    """A message of the contract as what JSON can hold."""
    return {
        field.name: _of_field(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def array_data(array: AnyArray) -> dict[str, Any]:
    """An array: dtype, shape, and its numbers as nested lists; a complex one as two numbers."""
    kind = array.dtype.kind
    if kind == "c":
        numbers = np.stack([array.real, array.imag], -1)
    else:
        numbers = array if kind in "biuf" else array.astype(np.float64)
    return {"dtype": str(array.dtype), "shape": array.shape, "values": numbers.tolist()}


def plain(value: Any) -> Any:
    """A value without what JSON lacks: NaN and infinities become texts, as protobuf has them."""
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return _NO_NUMBERS.get(value, "NaN")
    return value


def _of_field(field: Any, value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(sorted(value.items()))
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_of_field(field, each) for each in value]
    if field.message_type is not None:
        return data_of(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number
        return known[value].name if value in known else value
    return b64encode(value).decode() if isinstance(value, bytes) else value
