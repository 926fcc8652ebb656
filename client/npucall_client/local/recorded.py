"""Calls that are recorded to a file, and calls that such a file answers (``recorded:FILE``).

Both have sessions, pipelines and shared memory in this process, so that each call goes with all of
its arrays, as one question, and the same call is always the same bytes.
"""

from __future__ import annotations

import logging
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from npucall.errors import NpucallError
from npucall.operators import CATALOGUE
from npucall.wire.calls import PreparedCalls
from npucall.wire.messages import join_request, join_response, split_response
from npucall.wire.recordings import Answers, Recorded, append
from npucall.wire.replies import decode_identity
from npucall.wire.rpcs import EXECUTE, GET_SERVER_INFO, PLAN
from npucall_client.calls.answers import response_to
from npucall_client.calls.arguments import BoundCall
from npucall_client.local.sessions import LocalSessions
from npucall_client.local.transport import LocalTransport
from npucall_client.sending.request import Request
from npucall_client.sending.senders import finished
from npucall_client.targets import RECORDED

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import TypeAlias

    from npucall.declare.prepare import Prepared
    from npucall.tensors import Buffer
    from npucall.v1 import operator_service_pb2 as pb
    from npucall.wire.messages import Response
    from npucall.wire.rpcs import A, Q, Rpc
    from npucall_client.sending.reservations import ServerGrant
    from npucall_client.sending.senders import Sender
    from npucall_client.sending.transport import Transport
    from npucall_client.settings import ClientSettings

    T = TypeVar("T")
    Asked: TypeAlias = Callable[[Transport], Coroutine[Any, Any, T]]
    """What asks a server."""


_log = logging.getLogger("npucall_client")


class _Sessions(LocalSessions):
    """Sessions of this process whose calls are not sent again: who answers them has done so."""

    async def run_program(self, request: Request, steps: Sequence[BoundCall]) -> list[Response]:
        return await super().run_program(request._replace(once=True, waits=False), steps)


class RecordedTransport(LocalTransport):
    """Answers from a file."""

    def __init__(self, settings: ClientSettings, sender: Sender) -> None:
        self._settings = settings
        self._first = GET_SERVER_INFO.answer.FromString(
            self._answer(GET_SERVER_INFO.name, b"", _first_info)
        )
        super().__init__(self._first.server.soc, sender)
        self._identity = decode_identity(self._first.server)
        self._variant = self._first.default_variant
        self._calls = PreparedCalls(CATALOGUE, self._product, self._variant)
        self._bytes: WeakKeyDictionary[Prepared, bytes] = WeakKeyDictionary()
        self._sessions = _Sessions(self, sender)

    @cached_property
    def _answers(self) -> Answers:
        return Answers(Path(self._settings.target.removeprefix(RECORDED)))

    def _answer(self, method: str, message: bytes, ask: Asked[bytes]) -> bytes:
        """The answer to a question; ``ask`` asks a server, where there is one."""
        del ask
        return self._answers.to(method, message)

    async def _asked(self, method: str, message: bytes, ask: Asked[bytes]) -> bytes:
        return await self.sender.beside(lambda: self._answer(method, message, ask))

    async def execute(self, request: Request) -> Response:
        call = request.call
        if call.home is not None:
            return await self._sessions.execute(request)
        message = join_request(call.call, list(call.data.values()))
        return response_to(call, await self._asked(EXECUTE.name, message, _executed(request)))

    async def plan(self, request: Request) -> pb.PlanResponse:
        async def ask(server: Transport) -> bytes:
            return (await server.plan(request)).SerializeToString()

        message = join_request(request.call.call, ())
        return PLAN.answer.FromString(await self._asked(PLAN.name, message, ask))

    async def answer(self, request: Request, rpc: Rpc[Q, A], asked: Q) -> A:
        async def ask(server: Transport) -> bytes:
            return (await server.answer(request, rpc, asked)).SerializeToString()

        message = asked.SerializeToString(deterministic=True)
        return rpc.answer.FromString(await self._asked(rpc.name, message, ask))

    @property
    def first_info(self) -> pb.GetServerInfoResponse:
        """What the server said it was."""
        return self._first

    async def carrier(self, request: Request) -> str:
        """They do not travel."""
        del request
        return "recorded"

    async def close(self) -> None:
        """Gives the file back."""
        self._answers.close()

    # For calls of sessions.

    def prepared(self, call: bytes) -> Prepared:
        prepared = super().prepared(call)
        self._bytes[prepared] = call
        return prepared

    def compute(self, call: Prepared, storages: Sequence[Buffer]) -> list[Buffer]:
        settings, sent = self._settings, self._bytes[call]
        bound = BoundCall(call.operator.name, sent, dict(zip(call.stored, storages, strict=True)))
        request = Request(
            settings.timeout,
            reservation=settings.reservation,
            waits=settings.wait,
            name=bound.operator,
            call=bound,
        )
        answer = self._answer(EXECUTE.name, join_request(sent, storages), _executed(request))
        return list(split_response(answer).storage)  # type: ignore[arg-type]  # nothing is placed


class RecordingTransport(RecordedTransport):
    """Answers as a server does, and writes to a file what it was asked and what it answered."""

    def __init__(self, settings: ClientSettings, server: Transport, sender: Sender) -> None:
        self._server = server
        """Its sender is the one that blocks."""
        self._file = Path(settings.record)
        self._writes = True
        super().__init__(settings, sender)

    def _answer(self, method: str, message: bytes, ask: Asked[bytes]) -> bytes:
        try:
            answer = finished(ask(self._server))
        except NpucallError as error:
            self._write(Recorded(method, message, None, error))
            raise
        self._write(Recorded(method, message, answer))
        return answer

    def _write(self, call: Recorded) -> None:
        """Or says once why it did not: who calls gets an answer all the same."""
        if self._writes and (why := append(self._file, call)):
            self._writes = False
            _log.warning("record: %s takes no more calls: %s", self._file, why)

    async def _there(self, ask: Asked[T]) -> T:
        """What the server answers to what is not recorded."""
        return await self.sender.beside(lambda: finished(ask(self._server)))

    async def reserve(
        self, request: Request, seconds: float, wait: float, count: int = 1
    ) -> ServerGrant:
        return await self._there(lambda server: server.reserve(request, seconds, wait, count))

    async def renew(self, request: Request, key: str) -> ServerGrant:
        return await self._there(lambda server: server.renew(request, key))

    async def release(self, request: Request, key: str) -> None:
        await self._there(lambda server: server.release(request, key))

    async def carrier(self, request: Request) -> str:
        return await self._there(lambda server: server.carrier(request))

    async def close(self) -> None:
        await self._there(lambda server: server.close())


async def _first_info(server: Transport) -> bytes:
    return server.first_info.SerializeToString()


def _executed(request: Request) -> Asked[bytes]:
    async def ask(server: Transport) -> bytes:
        return join_response(*await server.execute(request))

    return ask
