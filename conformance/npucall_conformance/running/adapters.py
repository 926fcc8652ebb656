"""Adapters answer the calls of cases: a server, or a library of this process in place of one.

``torch_npu`` is such a library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from npucall.errors import NpucallError
from npucall.wire.rpcs import GET_SERVER_INFO
from npucall_client.sending.request import Request
from npucall_client.sending.senders import finished
from npucall_conformance import wire

if TYPE_CHECKING:
    from npucall_client.client import Client
    from npucall_conformance.cases.made_call import MadeCall
    from npucall_conformance.wire import WireAnswer


class Adapter(Protocol):
    """Answers calls. If it raises any other error than those named here, the answer is wrong."""

    @property
    def client(self) -> Client:
        """The client for requests other than calls.

        Raises NotJudgedError if there is no server.
        """
        ...

    def answer(self, call: MadeCall, timeout: float) -> WireAnswer:
        """The answer to a call.

        Raises NpucallError as a server does, NotJudgedError for a call that cannot be made here.
        """
        ...

    def lives(self) -> bool:
        """Whether it can still be asked, after a call without an answer."""
        ...


_SIGN_OF_LIFE = 2.0
"""How many seconds a server has to describe itself."""


class ServerAdapter:
    """Sends calls to the server of a client."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def answer(self, call: MadeCall, timeout: float) -> wire.WireAnswer:
        """The server's answer. Raises NpucallError."""
        return wire.send(self.client, call.request(), timeout)

    def lives(self) -> bool:
        """Whether the server still describes itself."""
        transport = self.client._transport  # noqa: SLF001  # what Client hides
        try:
            asked = GET_SERVER_INFO.request()
            finished(transport.answer(Request(_SIGN_OF_LIFE), GET_SERVER_INFO, asked))
        except NpucallError:
            return False
        return True
