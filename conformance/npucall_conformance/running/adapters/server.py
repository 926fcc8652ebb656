"""The adapter of a server, which a client calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall.errors import NpucallError
from npucall_client.sending.senders import finished
from npucall_conformance import wire

if TYPE_CHECKING:
    from npucall_client.client import Client
    from npucall_conformance.cases.made_call import MadeCall

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
            finished(transport.server_info(_SIGN_OF_LIFE))
        except NpucallError:
            return False
        return True
