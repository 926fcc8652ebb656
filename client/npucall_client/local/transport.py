"""``local:``: the operators' rules and formulas in this process, without a server."""

from __future__ import annotations

import math
import secrets
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from npucall.compute import evaluate
from npucall.declare.prepare import Prepared, once_a_call
from npucall.errors import NpucallError, OutOfMemoryError
from npucall.limits import MAX_PROGRAM_STEPS, MAX_RANK
from npucall.operators import CATALOGUE, DEFAULT_VARIANT
from npucall.products import DEFAULT_SOC, product_of
from npucall.v1 import access_service_pb2 as access_pb
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.calls import PreparedCalls
from npucall.wire.listing import describe, listing
from npucall.wire.messages import Response
from npucall.wire.replies import (
    ServerIdentity,
    Timings,
    encode_identity,
    encode_reply,
    encode_timings,
)
from npucall_client.local.sessions import LocalSessions
from npucall_client.sending.pipeline import OneByOne
from npucall_client.sending.reservations import ServerGrant, check_one
from npucall_client.sending.threads import THREADS
from npucall_client.shared.memory import SharedMemory, ordinary
from npucall_client.targets import ANY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from npucall.places import Place
    from npucall.tensors import Buffer
    from npucall.wire.rpcs import A, Q, Rpc
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.sending.request import Request
    from npucall_client.sending.senders import Sender


class LocalTransport:
    """Answers as a CPU reference server with that SoC would."""

    def __init__(self, soc: str = "", sender: Sender = THREADS) -> None:
        self.sender = sender
        soc = DEFAULT_SOC if soc in ("", ANY) else soc
        self._product = product_of(soc)
        self._identity = ServerIdentity(secrets.token_hex(6), "local", soc)
        self._started = time.monotonic()
        self._variant = CATALOGUE.default_variant(self._product, DEFAULT_VARIANT)
        self._calls = PreparedCalls(CATALOGUE, self._product, self._variant)
        self._reply = once_a_call(lambda call: encode_reply(call, self._identity))
        self._sessions = LocalSessions(self, sender)

    @property
    def sessions(self) -> LocalSessions:
        """Sessions of this process."""
        return self._sessions

    async def execute(self, request: Request) -> Response:
        """Computes a call in this process. It has no deadline: nothing could end the call."""
        call = request.call
        if call.home is not None:
            return await self._sessions.execute(request)
        return await self.sender.beside(lambda: self._computed(call))

    def _computed(self, call: BoundCall) -> Response:
        start = time.perf_counter_ns()
        prepared = self.prepared(call.call)
        storages = prepared.storages(list(call.data.values()))
        checked = time.perf_counter_ns()
        outputs = _run(prepared, storages)
        timings = Timings(check_ns=checked - start, run_ns=time.perf_counter_ns() - checked)
        views: list[Any] = [memoryview(output) for output in outputs]
        return Response(self._reply(prepared), encode_timings(timings), views)

    async def plan(self, request: Request) -> pb.PlanResponse:
        """Checks a call; there is no workspace."""
        start = time.perf_counter_ns()
        answer = self.plan_of(self.prepared(request.call.call))
        answer.timings.check_ns = time.perf_counter_ns() - start
        return answer

    @property
    def first_info(self) -> pb.GetServerInfoResponse:
        """What this process is."""
        return self.get_server_info(pb.GetServerInfoRequest())

    async def answer(self, request: Request, rpc: Rpc[Q, A], asked: Q) -> A:
        """What the method with the RPC's name answers."""
        del request
        method: Callable[[Q], A] = getattr(self, rpc.function)
        return method(asked)

    def list_operators(self, asked: pb.ListOperatorsRequest) -> pb.ListOperatorsResponse:
        """Every declared operator."""
        del asked
        return pb.ListOperatorsResponse.FromString(listing(tuple(CATALOGUE), self._product))

    def get_operator(self, asked: pb.GetOperatorRequest) -> pb.GetOperatorResponse:
        """One declared operator."""
        operator = CATALOGUE.find(asked.operator, asked.variant, self._variant)
        return pb.GetOperatorResponse(operator=describe(operator, self._product))

    def get_server_info(self, asked: pb.GetServerInfoRequest) -> pb.GetServerInfoResponse:
        """This process. Its limits are those of the machine."""
        del asked
        return pb.GetServerInfoResponse(
            server=encode_identity(self._identity),
            product=self._product.soc,
            default_variant=self._variant,
            version=version("npucall"),
            limits=pb.Limits(max_rank=MAX_RANK, program_steps=MAX_PROGRAM_STEPS),
            uptime_seconds=time.monotonic() - self._started,
        )

    def get_usage(self, asked: access_pb.GetUsageRequest) -> access_pb.GetUsageResponse:
        """An empty answer: nothing is counted here."""
        del asked
        return access_pb.GetUsageResponse()

    def get_activity(self, asked: access_pb.GetActivityRequest) -> access_pb.GetActivityResponse:
        """An empty answer: there is no queue here."""
        del asked
        return access_pb.GetActivityResponse()

    def lift_pause(self, asked: access_pb.LiftPauseRequest) -> access_pb.LiftPauseResponse:
        """Nothing: no call here ends another process."""
        del asked
        return access_pb.LiftPauseResponse()

    async def shared(self, request: Request, nbytes: int, socket: str) -> SharedMemory:
        """Memory of this process: nothing travels."""
        del request, socket
        return ordinary(nbytes)

    async def reserve(
        self, request: Request, seconds: float, wait: float, count: int = 1
    ) -> ServerGrant:
        """Grants it at once: there are no other callers."""
        check_one(count)
        del request, wait
        return ServerGrant("", seconds, seconds)

    async def renew(self, request: Request, key: str) -> ServerGrant:
        """Grants it again: a reservation never ends here."""
        del request
        return ServerGrant(key, math.inf, math.inf)

    async def release(self, request: Request, key: str) -> None:
        """Does nothing."""

    async def close(self) -> None:
        """Does nothing: it holds nothing."""

    async def carrier(self, request: Request) -> str:
        """They do not travel."""
        del request
        return "local"

    def calls(self) -> OneByOne:
        """Calls of a pipeline, computed when they are sent."""
        return OneByOne(self.execute)

    def prepared(self, call: bytes) -> Prepared:
        """A call that has passed its checks."""
        try:
            return self._calls.of(call)
        except NpucallError as error:
            error.details.setdefault("soc", self._identity.soc)
            raise

    def compute(self, call: Prepared, storages: Sequence[Buffer]) -> list[Buffer]:
        """The storages of the outputs of a call."""
        return _run(call, call.storages(storages))

    def response(self, call: Prepared, storages: Sequence[Place], run_ns: int) -> Response:
        """The answer to a call that ran for ``run_ns``."""
        answered: list[Any] = [memoryview(e) if isinstance(e, bytearray) else e for e in storages]
        return Response(self._reply(call), encode_timings(Timings(run_ns=run_ns)), answered)

    def plan_of(self, call: Prepared) -> pb.PlanResponse:
        """What a call would give; there is no workspace."""
        return pb.PlanResponse(reply=pb.Reply.FromString(self._reply(call)))


def _run(prepared: Prepared, storages: Mapping[str, Buffer]) -> list[Buffer]:
    try:
        return evaluate.run(prepared, storages)
    except MemoryError as error:
        raise OutOfMemoryError(
            f"this process has no {prepared.bytes_in_flight} bytes of memory free for the call",
            phase="run",
        ) from error
