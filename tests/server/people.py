"""People who call a server over a socket, and are believed whoever they say that they are."""

from collections.abc import Mapping
from typing import Any

import grpc

from npucall.errors import CredentialInvalidError
from npucall.v1 import access_service_pb2 as access
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall_server.access.guard import OpenGuard
from npucall_server.access.identity import Identity, KnownBy
from npucall_server.services.access_service import NAME as ACCESS
from npucall_server.services.operators import NAME as OPERATORS
from npucall_server.settings.tenants import Role

from .fakes import PATIENCE
from .raw import TRAILER, call_of, info_of


class BelievingGuard(OpenGuard):
    """Callers say in their metadata who they are: TENANT/NAME/ROLE."""

    asks = True

    def __init__(self) -> None:
        self.revoked: set[str] = set()
        """The names of those whose credential is no longer good."""

    def identify(
        self, peer: str, metadata: Mapping[str, str | bytes], context: grpc.ServicerContext
    ) -> Identity:
        tenant, name, role = str(metadata.get("test-person", "nobody/nobody/user")).split("/")
        return Identity(tenant, name, Role.named(role), KnownBy.TOKEN)

    def check(self, identity: Identity) -> None:
        if identity.name in self.revoked:
            raise CredentialInvalidError("credential: revoked")


class Person:
    """A caller of a server."""

    def __init__(self, channel: grpc.Channel, who: str) -> None:
        self._channel, self._who = channel, who

    def begin(self, method: str, request: Any, key: str = "", service: str = ACCESS) -> Any:
        """A call that is under way; its result may be the error that ended it."""
        metadata = [("test-person", self._who), *([("npucall-reservation", key)] if key else ())]
        send: Any = self._channel.unary_unary(f"/{service}/{method}")  # type: ignore[call-arg]
        return send.future(request.SerializeToString(), timeout=PATIENCE, metadata=metadata)

    def begin_execute(self, key: str = "", operator: str = "aclnnL1LossBackward") -> Any:
        storage = [tensor_pb2.Storage(data=bytes(8))] * 3
        request = pb.ExecuteRequest(call=call_of(2, operator), storage=storage)
        return self.begin("Execute", request, key, OPERATORS)

    def execute(self, key: str = "", operator: str = "aclnnL1LossBackward") -> bytes:
        answer: bytes = self.begin_execute(key, operator).result()
        return answer

    def plan(self, key: str = "") -> bytes:
        request = pb.PlanRequest(call=call_of(2))
        answer: bytes = self.begin("Plan", request, key, OPERATORS).result()
        return answer

    def info(self) -> pb.GetServerInfoResponse:
        data = self.begin("GetServerInfo", pb.GetServerInfoRequest(), "", OPERATORS).result()
        return pb.GetServerInfoResponse.FromString(data)

    def begin_reserve(self, seconds: float = 60.0, wait: float = PATIENCE) -> Any:
        request = access.ReserveRequest(seconds=seconds, wait_seconds=wait)
        return self.begin("Reserve", request)

    def reserve(self, seconds: float = 60.0, wait: float = 0.0) -> str:
        """The key."""
        data = self.begin_reserve(seconds, wait).result()
        return access.ReserveResponse.FromString(data).key

    def renew(self, key: str) -> None:
        self.begin("RenewReservation", access.RenewReservationRequest(key=key)).result()

    def release(self, key: str = "") -> None:
        self.begin("ReleaseReservation", access.ReleaseReservationRequest(key=key)).result()


def told(error: Any) -> tuple[str, dict[str, str]]:
    """The reason and the facts of a refusal."""
    info = info_of(dict(error.trailing_metadata())[TRAILER])
    return info.reason, dict(info.metadata)
