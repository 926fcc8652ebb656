"""Another sender needs nothing but to send: one for asyncio, over what knows no gRPC."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Self

import grpc
import grpc.aio
import numpy as np
import pytest

from npucall.errors import NpucallError, QueueFullError, ServerUnreachableError, ShapeError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.messages import split_response
from npucall_client.calling import Binding, Result, result_of
from npucall_client.remote import retry
from npucall_client.remote.failures import Sender, failure
from npucall_client.remote.retry import Attempts
from npucall_client.remote.service import OPTIONS, path_of
from npucall_client.remote.transfer import message_of
from npucall_client.settings import ClientSettings

from .test_channel import Script, fail, reply_of, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_client.arguments import BoundCall

ONES = np.ones((2, 3), np.float32)


class AsyncSender:
    """What an asyncio client adds."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._binding = Binding(ClientSettings.of(target=target))
        self._channel = grpc.aio.insecure_channel(target, options=OPTIONS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def execute(self, operator: Any, /, *args: Any, **kwargs: Any) -> Result:
        start, options = time.perf_counter_ns(), self._binding.options_of(operator, kwargs)
        if not self._binding.knows(operator):
            request = pb.GetOperatorRequest(operator=operator).SerializeToString()
            answer = await self._send("GetOperator", request, options.timeout)
            self._binding.declare(pb.GetOperatorResponse.FromString(answer).operator)
        call: BoundCall = self._binding.bind(operator, args, kwargs, options)
        answer = await self._send("Execute", message_of(call), options.timeout)
        return result_of(call, split_response(answer), start)

    async def _send(self, method: str, request: bytes, seconds: float) -> bytes:
        ends = time.monotonic() + seconds
        attempts = Attempts(ends)
        while True:
            try:
                return await self._attempt(method, request, ends - time.monotonic())
            except NpucallError as error:
                pause = attempts.pause_after(error)
                if pause is None:
                    raise
            await asyncio.sleep(pause)

    async def _attempt(self, method: str, request: bytes, seconds: float) -> bytes:
        send: Any = self._channel.unary_unary(path_of(method))  # type: ignore[call-arg]
        try:
            answer: bytes = await send(request, timeout=seconds, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            is_connected = self._channel.get_state() is grpc.ChannelConnectivity.READY
            sender = Sender(self._target, is_connected, is_closed=False)
            trailers = error.trailing_metadata()
            raise failure(sender, error.code(), error.details(), trailers, seconds) from error
        return answer


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def target(script: Script) -> Iterator[str]:
    with serving(script) as address:
        yield address


@pytest.fixture
def cpu_server(request: pytest.FixtureRequest) -> str:
    """The client's tests also run where no server is installed."""
    pytest.importorskip("npucall_server")
    address: str = request.getfixturevalue("npucall_server")
    return address


def test_many_calls_at_once_get_their_own_answers(cpu_server: str) -> None:
    async def work() -> list[Any]:
        async with AsyncSender(cpu_server) as sender:
            calls = [
                sender.execute(l1_loss_backward, n * ONES, ONES, 0 * ONES, reduction=2)
                for n in range(20)
            ]
            return [answer.value.sum() for answer in await asyncio.gather(*calls)]

    assert asyncio.run(work()) == [6.0 * n for n in range(20)]


def test_an_error_of_the_server_is_the_contracts(cpu_server: str) -> None:
    async def work() -> None:
        async with AsyncSender(cpu_server) as sender:
            await sender.execute(l1_loss_backward, ONES, ONES, np.ones(4, np.float32))

    with pytest.raises(ShapeError) as caught:
        asyncio.run(work())
    assert caught.value.aclnn_status == 161002


def test_it_obeys_the_same_rule_of_repeats(
    script: Script, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "PAUSES", (0.0,) * 4)

    def undispatched(request: bytes, context: grpc.ServicerContext) -> bytes:
        if len(script.requests) < 3:
            context.abort(grpc.StatusCode.CANCELLED, "")
        if len(script.requests) == 4:
            return fail(QueueFullError("busy"))(request, context)
        return reply_of(ONES)

    async def work() -> None:
        async with AsyncSender(target) as sender:
            await sender.execute("aclnnKlDivBackward", ONES, self=ONES, target=ONES)
            with pytest.raises(QueueFullError):
                await sender.execute("aclnnKlDivBackward", ONES, self=ONES, target=ONES)

    script.answer = undispatched
    asyncio.run(work())
    assert len(script.requests) == 4


def test_a_server_that_is_gone_is_unreachable(script: Script) -> None:
    with serving(script) as address:
        pass

    async def work() -> None:
        async with AsyncSender(address) as sender:
            await sender.execute("aclnnKlDivBackward", ONES, self=ONES, target=ONES, timeout=0.3)

    with pytest.raises(ServerUnreachableError, match=f"expected a server at {address}"):
        asyncio.run(work())
