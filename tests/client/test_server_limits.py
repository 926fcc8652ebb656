"""How a call travels: by what of it is sent, and by what its answer may be."""

from __future__ import annotations

from typing import Any

import pytest

from npucall.places import HandlePart, Keep
from npucall.v1 import operator_service_pb2 as pb
from npucall_client.arguments import BoundCall
from npucall_client.remote.server_limits import ServerLimits

STREAM_FROM = 1000
LIMITS = pb.Limits(stream_window=8, max_message_bytes=1 << 20)
SHORT = bytes(10)


def held(length: int) -> HandlePart:
    return HandlePart(bytes(16), 0, length)


def of_session(storage: dict[str, Any], **more: Any) -> BoundCall:
    home: Any = object()
    return BoundCall("x", storage=storage, home=home, **more)


@pytest.mark.parametrize(
    ("call", "has_stream"),
    [
        (BoundCall("x", storage={"a": SHORT}), False),
        (BoundCall("x", storage={"a": bytes(STREAM_FROM)}), True),
        (of_session({"a": SHORT, "b": held(STREAM_FROM - 11)}), False),
        (of_session({"a": SHORT, "b": held(STREAM_FROM - 10)}), True),
        (of_session({"b": held(STREAM_FROM)}, kept={"out": Keep(bytes(16))}), False),
    ],
    ids=["small", "large", "a small handle", "a large handle", "a large handle, answer kept"],
)
def test_a_call_gets_a_stream_for_what_it_sends_or_may_be_answered(
    call: BoundCall, *, has_stream: bool
) -> None:
    assert ServerLimits(LIMITS, STREAM_FROM).travels_in_chunks(call) is has_stream
