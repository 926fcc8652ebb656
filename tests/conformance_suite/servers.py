"""Servers that answer wrongly, or not at all, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from npucall.errors import ServerUnreachableError
from npucall.wire.messages import Response
from npucall_client.client import Client
from npucall_client.conformance.runner import Judged, Runner, judged
from npucall_client.conformance.select import Selection, select
from npucall_client.conformance.statements import statements
from npucall_client.local import LocalTransport
from npucall_client.settings import ClientSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall_client.arguments import BoundCall
    from npucall_client.conformance.report import Outcome


class Altered(LocalTransport):
    """Lets a function change the bytes of every output before they are answered."""

    def __init__(self, change: Callable[[bytearray], None], soc: str = "Ascend910B1") -> None:
        super().__init__(soc)
        self._change = change

    async def execute(self, request: BoundCall, timeout: float, request_id: str) -> Response:
        response = await super().execute(request, timeout, request_id)
        storages = [bytearray(storage) for storage in response.storage]
        for storage in storages:
            self._change(storage)
        return Response(response.reply, response.timings, [memoryview(each) for each in storages])


class Refusing(LocalTransport):
    """Raises an error instead of every answer, and counts how often it is asked."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__("Ascend910B1")
        self.asked = 0
        self._error = error or ServerUnreachableError("target: expected a server, found none")

    async def execute(self, request: BoundCall, timeout: float, request_id: str) -> Response:
        self.asked += 1
        raise self._error


def client_of(transport: Any) -> Client:
    return Client(transport, ClientSettings(target="local:"))


def local(soc: str = "Ascend910B1") -> Judged:
    return judged(client_of(LocalTransport(soc)), "local:")


def altered(change: Callable[[bytearray], None]) -> Judged:
    return judged(client_of(Altered(change)), "altered")


def run(first: Judged, second: Judged | None = None, **filters: Any) -> list[Outcome]:
    """The outcomes of a run with these fields of a selection."""
    options = {name: filters.pop(name) for name in ("profile", "on_failure") if name in filters}
    cases = select(statements(), Selection(**filters))
    return list(Runner(first, second, **options).run(cases))


def failed(outcomes: list[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.status == "failed"]
