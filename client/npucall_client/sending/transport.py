"""The requests of a client to the place that computes its calls: a server, or this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from npucall.v1 import operator_service_pb2 as pb
    from npucall.wire.messages import Response
    from npucall.wire.rpcs import A, Q, Rpc
    from npucall_client.sending.pipeline import Calls
    from npucall_client.sending.request import Request
    from npucall_client.sending.reservations import ServerGrant
    from npucall_client.sending.senders import Sender
    from npucall_client.sending.session_transport import SessionTransport
    from npucall_client.shared.memory import SharedMemory


class Transport(Protocol):
    """Where calls are computed: a server, or this process."""

    @property
    def sender(self) -> Sender:
        """What waits and sends."""

    @property
    def first_info(self) -> pb.GetServerInfoResponse:
        """What it said it was when the client connected."""

    async def execute(self, request: Request) -> Response:
        """Runs a call."""

    async def plan(self, request: Request) -> pb.PlanResponse:
        """Checks a call."""

    async def carrier(self, request: Request) -> str:
        """How calls travel: ``frames``, ``grpc``; ``local`` or ``recorded`` if they do not."""

    def calls(self) -> Calls:
        """Where a pipeline sends its calls."""

    async def shared(self, request: Request, nbytes: int, socket: str) -> SharedMemory:
        """Memory that it shares; ``socket``: the path of its socket, if not the one it says."""

    async def reserve(
        self, request: Request, seconds: float, wait: float, count: int = 1
    ) -> ServerGrant:
        """Reserves ``count`` devices. Raises ValueError if there are not so many."""

    async def renew(self, request: Request, key: str) -> ServerGrant:
        """Renews a reservation. Raises ReservedError if it has ended."""

    async def release(self, request: Request, key: str) -> None:
        """Ends a reservation; without a key, ends any that there is."""

    @property
    def sessions(self) -> SessionTransport:
        """The transport that keeps the handles of sessions."""

    async def answer(self, request: Request, rpc: Rpc[Q, A], asked: Q) -> A:
        """The answer to an RPC of one message each way."""

    async def close(self) -> None:
        """Gives back what it holds."""
