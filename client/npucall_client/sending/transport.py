"""The requests of a client to the place that computes its calls: a server, or this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from npucall.v1 import access_service_pb2 as access_pb
    from npucall.v1 import operator_service_pb2 as pb
    from npucall.wire.messages import Response
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.sending.pipeline import Calls
    from npucall_client.sending.reservations import Granted
    from npucall_client.sending.senders import Sender
    from npucall_client.sending.session_transport import SessionTransport
    from npucall_client.shared.memory import SharedMemory


class Transport(Protocol):
    """Where calls are computed: a server, or this process."""

    @property
    def sender(self) -> Sender:
        """What waits and sends."""

    async def execute(self, call: BoundCall, timeout: float, request_id: str) -> Response:
        """Runs a call."""

    async def plan(self, call: BoundCall, timeout: float, request_id: str) -> pb.PlanResponse:
        """Checks a call."""

    def calls(self) -> Calls:
        """Where a pipeline sends its calls."""

    async def shared(self, nbytes: int, socket: str, timeout: float) -> SharedMemory:
        """Memory that it shares; ``socket``: the path of its socket, if not the one it says."""

    async def reserve(self, seconds: float, wait: float, timeout: float, count: int = 1) -> Granted:
        """Reserves ``count`` devices. Raises ValueError if there are not so many."""

    async def renew(self, key: str, timeout: float) -> Granted:
        """Renews a reservation. Raises ReservedError if it has ended."""

    async def release(self, key: str, timeout: float) -> None:
        """Ends a reservation; without a key, ends any that there is."""

    def under(self, key: str) -> Transport:
        """The same, for calls under a reservation."""

    def waiting(self, wait: bool) -> Transport:  # noqa: FBT001  # it is what the setting is called
        """The same, for calls that wait, or do not wait, for a server that is full."""

    @property
    def sessions(self) -> SessionTransport:
        """The transport that keeps the handles of sessions."""

    async def operators(self, timeout: float) -> list[pb.OperatorInfo]:
        """Lists the operators."""

    async def operator(self, name: str, variant: str, timeout: float) -> pb.OperatorInfo:
        """Describes one operator."""

    async def server_info(self, timeout: float) -> pb.GetServerInfoResponse:
        """Describes the server."""

    async def usage(self, last_seconds: float, timeout: float) -> access_pb.GetUsageResponse:
        """Who used it, and how long."""

    async def activity(self, timeout: float) -> access_pb.GetActivityResponse:
        """Who uses it now."""

    async def close(self) -> None:
        """Gives back what it holds."""
