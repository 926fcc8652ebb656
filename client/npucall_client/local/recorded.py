"""Calls that are recorded to a file, and calls that such a file answers (``recorded:FILE``).

Both have sessions, pipelines and shared memory in this process, so that each call goes with all of
its arrays, as one question, and the same call is always the same bytes.
"""

from __future__ import annotations

import warnings
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


class _Sessions(LocalSessions):
    """Sessions of this process whose calls are not sent again: who answers them has done so."""

    async def run_program(self, request: Request, steps: Sequence[BoundCall]) -> list[Response]:
        return await super().run_program(request._replace(once=True, waits=False), steps)


class RecordedTransport(LocalTransport):
    """Answers from a file."""

    def __init__(self, settings: ClientSettings, sender: Sender) -> None:
        self._settings = settings
        self._open()
        asked = GET_SERVER_INFO.request()
        message = self._answer(GET_SERVER_INFO.name, asked.SerializeToString(), self._info)
        self._first = GET_SERVER_INFO.answer.FromString(message)
        super().__init__(self._first.server.soc, sender)
        self._identity = decode_identity(self._first.server)
        self._variant = self._first.default_variant
        self._calls = PreparedCalls(CATALOGUE, self._product, self._variant)
        self._bytes: WeakKeyDictionary[Prepared, bytes] = WeakKeyDictionary()
        self._sessions = _Sessions(self, sender)

    def _open(self) -> None:
        self._answers = Answers(Path(self._settings.target.removeprefix(RECORDED)))

    def _info(self) -> bytes:
        """What a server says it is, where there is one."""
        raise NotImplementedError

    def _answer(self, method: str, message: bytes, live: Callable[[], bytes]) -> bytes:
        """The answer to a question; ``live`` asks the server, where there is one."""
        del live
        return self._answers.to(method, message)

    def _live(self, work: Callable[[Transport], Coroutine[Any, Any, T]]) -> T:
        """What the server answers, where there is one."""
        raise NotImplementedError

    async def _asked(self, method: str, message: bytes, live: Callable[[], bytes]) -> bytes:
        return await self.sender.beside(lambda: self._answer(method, message, live))

    async def execute(self, request: Request) -> Response:
        call = request.call
        if call.home is not None:
            return await self._sessions.execute(request)
        message = join_request(call.call, list(call.data.values()))
        return response_to(
            call, await self._asked(EXECUTE.name, message, lambda: self._executed(request))
        )

    def _executed(self, request: Request) -> bytes:
        return join_response(*self._live(lambda server: server.execute(request)))

    async def plan(self, request: Request) -> pb.PlanResponse:
        message = join_request(request.call.call, ())
        answer = await self._asked(
            PLAN.name,
            message,
            lambda: self._live(lambda server: server.plan(request)).SerializeToString(),
        )
        return PLAN.answer.FromString(answer)

    async def answer(self, request: Request, rpc: Rpc[Q, A], asked: Q) -> A:
        def live() -> bytes:
            return self._live(lambda server: server.answer(request, rpc, asked)).SerializeToString()

        message = asked.SerializeToString(deterministic=True)
        return rpc.answer.FromString(await self._asked(rpc.name, message, live))

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
        sent = self._bytes[call]
        given = dict(zip(call.stored, storages, strict=True))
        request = Request(
            self._settings.timeout,
            reservation=self._settings.reservation,
            waits=self._settings.wait,
            name=call.operator.name,
            call=BoundCall(call.operator.name, sent, {**given}),
        )
        message = join_request(sent, storages)
        answer = self._answer(EXECUTE.name, message, lambda: self._executed(request))
        return list(split_response(answer).storage)  # type: ignore[arg-type]  # nothing is placed


class RecordingTransport(RecordedTransport):
    """Answers as a server does, and writes to a file what it was asked and what it answered."""

    def __init__(self, settings: ClientSettings, server: Transport, sender: Sender) -> None:
        self._server = server
        """Its sender is the one that blocks."""
        self._file = Path(settings.record)
        self._is_full = False
        super().__init__(settings, sender)

    def _open(self) -> None:
        """The file is opened for each call."""

    def _info(self) -> bytes:
        return self._server.first_info.SerializeToString()

    def _answer(self, method: str, message: bytes, live: Callable[[], bytes]) -> bytes:
        try:
            answer = live()
        except NpucallError as error:
            self._write(Recorded(method, message, None, error))
            raise
        self._write(Recorded(method, message, answer))
        return answer

    def _write(self, call: Recorded) -> None:
        if not append(self._file, call) and not self._is_full:
            self._is_full = True
            warnings.warn(f"record: {self._file} has no room for more calls", stacklevel=2)

    def _live(self, work: Callable[[Transport], Coroutine[Any, Any, T]]) -> T:
        return finished(work(self._server))

    async def reserve(
        self, request: Request, seconds: float, wait: float, count: int = 1
    ) -> ServerGrant:
        return await self.sender.beside(
            lambda: finished(self._server.reserve(request, seconds, wait, count))
        )

    async def renew(self, request: Request, key: str) -> ServerGrant:
        return await self.sender.beside(lambda: finished(self._server.renew(request, key)))

    async def release(self, request: Request, key: str) -> None:
        await self.sender.beside(lambda: finished(self._server.release(request, key)))

    async def carrier(self, request: Request) -> str:
        return await self.sender.beside(lambda: finished(self._server.carrier(request)))

    async def close(self) -> None:
        await self.sender.beside(lambda: finished(self._server.close()))
