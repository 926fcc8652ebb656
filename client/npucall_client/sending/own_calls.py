"""Calls of a pipeline that may have ended a server: each is sent again as a call of its own."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall.wire.messages import Response
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.sending.losses import Losses
    from npucall_client.sending.senders import Sender
    from npucall_client.sending.writer import SentCall

_AT_A_TIME = 8


class Again(Protocol):
    """Sends a call of which an attempt was lost."""

    async def again(
        self, call: BoundCall, timeout: float, request_id: str, losses: Losses
    ) -> Response:
        """Raises NpucallError."""


class OwnCalls:
    """Sends such calls, a few at a time. ``finish`` is called with the end of each of them."""

    def __init__(
        self,
        connection: Again,
        sender: Sender,
        finish: Callable[[SentCall, Response | Exception], object],
    ) -> None:
        self._connection, self._finish = connection, finish
        self._workers = sender.workers(_AT_A_TIME, "npucall-repeats")

    def send(self, call: SentCall) -> None:
        """Sends a call."""
        self._workers.submit(lambda: self._run(call))

    async def close(self) -> None:
        """Waits until all have ended."""
        await self._workers.close()

    async def _run(self, sent: SentCall) -> None:
        if sent.is_over:
            return
        left = max(0.0, sent.ends - time.monotonic())
        try:
            answer = await self._connection.again(sent.call, left, sent.request_id, sent.losses)
        except Exception as error:  # noqa: BLE001  # the call's own
            self._finish(sent, error)
        else:
            self._finish(sent, answer)
