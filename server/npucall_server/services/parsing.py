"""Requests of every service, from their bytes."""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from npucall.errors import MessageError
from npucall.wire.messages import check_overhead

M = TypeVar("M", bound=Message)


def parse(kind: type[M], data: bytes) -> M:
    """A request of that kind. Raises MessageError."""
    check_overhead("request", len(data))
    try:
        message: Any = kind.FromString(data)
    except DecodeError as error:
        raise MessageError(f"request: expected a serialised {kind.__name__}") from error
    parsed: M = message
    return parsed
