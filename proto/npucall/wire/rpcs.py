"""The RPCs: a row for each, from which server and client know what it is.

Name, path, messages and streams are those of the ``.proto``. The row adds how a server treats it.
On the server the method of a service has the RPC's name, as ``rpc.function`` writes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from npucall.v1 import access_service_pb2 as access
from npucall.v1 import directory_service_pb2 as directory
from npucall.v1 import operator_service_pb2 as operators
from npucall.v1 import session_service_pb2 as sessions

if TYPE_CHECKING:
    from google.protobuf.message import Message

Q = TypeVar("Q", bound="Message")
A = TypeVar("A", bound="Message")

_REQUEST = "Request"


class RpcKind(Enum):
    """How a server treats an RPC."""

    CALL = auto()
    """One message each way. It checks or runs a call, and has the threads of calls."""
    LISTING = auto()
    """One message each way. The server answers it however busy it is."""
    WAIT = auto()
    """One message each way. It may wait long, with threads of its own."""
    CHUNKS = auto()
    """Bytes travel in chunks in one direction; it is one call in the log."""
    STREAM = auto()
    """A stream whose messages count by themselves."""


@dataclass(frozen=True)
class Rpc(Generic[Q, A]):
    """An RPC."""

    kind: RpcKind
    request: type[Q]
    answer: type[A]

    @cached_property
    def name(self) -> str:
        """As the ``.proto`` writes it: GetUsage."""
        return self.request.DESCRIPTOR.name.removesuffix(_REQUEST)

    @cached_property
    def function(self) -> str:
        """As Python writes it: get_usage."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()

    @cached_property
    def described(self) -> Any:
        """Its descriptor."""
        services = self.request.DESCRIPTOR.file.services_by_name.values()
        (found,) = (
            method for each in services for method in each.methods if method.name == self.name
        )
        return found

    @cached_property
    def service(self) -> str:
        """The full name of its service."""
        return str(self.described.containing_service.full_name)

    @cached_property
    def path(self) -> str:
        """Its path for gRPC."""
        return f"/{self.service}/{self.name}"


_CALL, _LISTING, _WAIT, _CHUNKS, _STREAM = RpcKind
EXECUTE = Rpc(_CALL, operators.ExecuteRequest, operators.ExecuteResponse)
EXECUTE_STREAM = Rpc(_STREAM, operators.ExecuteStreamRequest, operators.ExecuteStreamResponse)
PLAN = Rpc(_CALL, operators.PlanRequest, operators.PlanResponse)
EXECUTE_PROGRAM = Rpc(_CALL, operators.ExecuteProgramRequest, operators.ExecuteProgramResponse)
PLAN_PROGRAM = Rpc(_CALL, operators.PlanProgramRequest, operators.PlanProgramResponse)
LIST_OPERATORS = Rpc(_LISTING, operators.ListOperatorsRequest, operators.ListOperatorsResponse)
GET_OPERATOR = Rpc(_LISTING, operators.GetOperatorRequest, operators.GetOperatorResponse)
GET_SERVER_INFO = Rpc(_LISTING, operators.GetServerInfoRequest, operators.GetServerInfoResponse)

RESERVE = Rpc(_WAIT, access.ReserveRequest, access.ReserveResponse)
RENEW_RESERVATION = Rpc(_LISTING, access.RenewReservationRequest, access.RenewReservationResponse)
RELEASE_RESERVATION = Rpc(
    _LISTING, access.ReleaseReservationRequest, access.ReleaseReservationResponse
)
GET_USAGE = Rpc(_LISTING, access.GetUsageRequest, access.GetUsageResponse)
GET_ACTIVITY = Rpc(_LISTING, access.GetActivityRequest, access.GetActivityResponse)
LIFT_PAUSE = Rpc(_LISTING, access.LiftPauseRequest, access.LiftPauseResponse)

OPEN_SESSION = Rpc(_LISTING, sessions.OpenSessionRequest, sessions.OpenSessionResponse)
RENEW = Rpc(_LISTING, sessions.RenewRequest, sessions.RenewResponse)
CLOSE = Rpc(_LISTING, sessions.CloseRequest, sessions.CloseResponse)
RELEASE = Rpc(_LISTING, sessions.ReleaseRequest, sessions.ReleaseResponse)
UPLOAD = Rpc(_CHUNKS, sessions.UploadRequest, sessions.UploadResponse)
DOWNLOAD = Rpc(_CHUNKS, sessions.DownloadRequest, sessions.DownloadResponse)
FIND_MISSING = Rpc(_LISTING, sessions.FindMissingRequest, sessions.FindMissingResponse)

ANNOUNCE = Rpc(_STREAM, directory.AnnounceRequest, directory.AnnounceResponse)
WATCH_MEMBERS = Rpc(_STREAM, directory.WatchMembersRequest, directory.WatchMembersResponse)

RPCS = {each.name: each for each in list(globals().values()) if isinstance(each, Rpc)}
"""By their names, each of which is in one service."""


def rpcs_of(service: str) -> list[Rpc[Message, Message]]:
    """Those of a service, by its full name."""
    return [each for each in RPCS.values() if each.service == service]
