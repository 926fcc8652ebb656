"""Sends calls with any spec, format and storage, even those that the typed client refuses.

Adapters answer the calls of cases: a server, or a library of this process in place of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, TypeAlias

from npucall.errors import InternalError, NpucallError
from npucall.places import Place
from npucall.tensors import TensorSpec
from npucall.wire.messages import Response
from npucall.wire.replies import Reply, Timings, decode_timings
from npucall.wire.rpcs import GET_SERVER_INFO
from npucall_client.calls.answers import decode_reply
from npucall_client.calls.arguments import BoundCall
from npucall_client.client import Client
from npucall_client.sending.request import Request
from npucall_client.sending.senders import finished
from npucall_conformance.cases.made_call import MadeCall

ON_CPU = ("local", "cpu")
"""Devices that are no hardware: they have every variant, and their replies have every field."""


@dataclass(frozen=True)
class WireAnswer:
    """What a server answered."""

    reply: Reply
    storages: Mapping[str, bytes]
    timings: Timings
    """The server's own times."""
    total_ns: int
    """The time from request to answer, measured here."""

    @property
    def outputs(self) -> Mapping[str, TensorSpec]:
        """The outputs, in the operator's order."""
        return self.reply.outputs


AnswerOrError: TypeAlias = WireAnswer | NpucallError


def in_message(_: str, place: Place) -> bytes:
    """The bytes of an output that came with its answer."""
    if isinstance(place, tuple) or place is None:
        raise InternalError(f"response: expected the bytes of an output, found {place}")
    return bytes(place)


def received(
    response: Response, total_ns: int, fetch: Callable[[str, Place], bytes] = in_message
) -> WireAnswer:
    """A transport's response with the bytes of every output, which ``fetch`` gets.

    Raises ValueError or InternalError for a response that contradicts itself.
    """
    try:
        reply = decode_reply(response.reply)
    except NpucallError as error:  # such as a spec that lies: no answer to the call
        raise unreadable(error) from error
    places: list[Any] = list(response.storage)
    storages = {n: fetch(n, place) for n, place in zip(reply.stored, places, strict=True)}
    for name, spec in reply.outputs.items():
        if (found := len(storages.get(name, b""))) != spec.storage_bytes:
            raise ValueError(f"{name}: expected {spec.storage_bytes} bytes, found {found}")
    return WireAnswer(reply, storages, decode_timings(response.timings), total_ns)


def unreadable(error: Exception) -> NpucallError:
    """The error in place of an answer that breaks the contract."""
    return InternalError(f"unreadable answer: {type(error).__name__}: {error}")


def send(client: Client, call: BoundCall, timeout: float = 60.0) -> WireAnswer:
    """Runs one call, in one message or in chunks, depending on its size. Raises NpucallError."""
    start = perf_counter_ns()
    transport = client._transport  # noqa: SLF001  # what Client hides
    response = finished(transport.execute(Request(timeout, name=call.operator, call=call)))
    return received(response, perf_counter_ns() - start)


_SIGN_OF_LIFE = 2.0
"""How many seconds a server has to describe itself."""


class ServerAdapter:
    """Sends calls to the server of a client.

    A library of this process in place of a server, such as ``TorchNpu``, has the same methods. If
    one raises any other error than those that it names, the answer is wrong.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    def answer(self, call: MadeCall, timeout: float) -> WireAnswer:
        """The server's answer. Raises NpucallError."""
        return send(self.client, call.request(), timeout)

    def lives(self) -> bool:
        """Whether the server still describes itself."""
        transport = self.client._transport  # noqa: SLF001  # what Client hides
        try:
            asked = GET_SERVER_INFO.request()
            finished(transport.answer(Request(_SIGN_OF_LIFE), GET_SERVER_INFO, asked))
        except NpucallError:
            return False
        return True
