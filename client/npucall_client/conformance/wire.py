"""Sends calls with any spec, format and storage, below what the typed client lets through."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from npucall.wire import calls
from npucall.wire.replies import decode_timings
from npucall_client.answers import decode_reply
from npucall_client.arguments import BoundCall
from npucall_client.senders import finished

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npucall.declare.call import Argument
    from npucall.tensors import Buffer, TensorSpec
    from npucall_client.client import Client


@dataclass(frozen=True)
class Answer:
    """What a server answered."""

    outputs: Mapping[str, TensorSpec]
    storages: Mapping[str, bytes]
    variant: str
    run_ns: int
    """Time on the device."""
    total_ns: int


def send(  # noqa: PLR0913  # all that makes a call
    client: Client,
    operator: str,
    variant: str,
    arguments: Mapping[str, Argument],
    storages: Mapping[str, Buffer],
    timeout: float = 60.0,
) -> Answer:
    """Runs one call. Raises NpucallError."""
    data = calls.encode(operator, variant, arguments, tuple(storages))
    request = BoundCall(operator, data, dict(storages))
    start = perf_counter_ns()
    transport = client._transport  # noqa: SLF001  # what Client hides
    response = finished(transport.execute(request, timeout, ""))
    total = perf_counter_ns() - start
    reply = decode_reply(response.reply)
    storage: list[Any] = response.storage  # none in shared memory, since none was asked to be
    sent = {n: bytes(s) for n, s in zip(reply.stored, storage, strict=True)}
    return Answer(
        reply.outputs, sent, reply.variant, decode_timings(response.timings).run_ns, total
    )
