"""A server at a target: the channel, its retries, and gRPC's errors made the contract's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn

import grpc

from npucall.errors import DeadlineError, NpucallError, ServerUnreachableError, TooLargeError
from npucall.framing import Response, join_request, split_response
from npucall.status import REQUEST_ID, TRAILER, from_status
from npucall.v1 import operator_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall_client.arguments import Request

_SERVICE: str = pb.DESCRIPTOR.services_by_name["OperatorService"].full_name
_GRPC_MAX = 2**31 - 1
_CHECKED_FROM = 1 << 20
"""Bytes from which a request is held against the server's limits before it is sent."""

# A call has no side effects, so it may be repeated whatever happened. Waiting for a channel that is
# ready makes a restart of the server cost time instead of attempts.
_SERVICE_CONFIG = {
    "methodConfig": [
        {
            "name": [{"service": _SERVICE}],
            "waitForReady": True,
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.1s",
                "maxBackoff": "5s",
                "backoffMultiplier": 3,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}
_OPTIONS = [
    ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # gRPC repeats nothing larger than this, and it is 256 KiB unless set.
    ("grpc.per_rpc_retry_buffer_size", _GRPC_MAX),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
]


class ChannelTransport:
    """Sends to a server. ``connect_timeout``: seconds that it may take to answer at first.

    Raises ServerUnreachableError where nothing answers.
    """

    def __init__(self, target: str, connect_timeout: float) -> None:
        self._target = target
        self._channel = grpc.insecure_channel(target, options=_OPTIONS)
        self._execute = self._method("Execute")
        self._plan = self._method("Plan")
        self._list_operators = self._method("ListOperators")
        self._get_operator = self._method("GetOperator")
        self._get_server_info = self._method("GetServerInfo")
        try:
            self._limits = self.server_info(connect_timeout).limits
        except DeadlineError as error:
            self.close()
            raise self._unreachable(connect_timeout) from error
        except BaseException:
            self.close()
            raise

    def execute(self, request: Request, timeout: float, request_id: str) -> Response:
        """One call, repeated while the server is unavailable and the timeout allows."""
        storage = list(request.storage.values())
        message = join_request(request.call, storage)
        if len(message) >= _CHECKED_FROM:
            self._check_size(request, len(message))
        return split_response(self._send(self._execute, message, timeout, request_id))

    def plan(self, request: Request, timeout: float, request_id: str) -> pb.PlanResponse:
        """Phase one of a call."""
        message = join_request(request.call, ())
        return pb.PlanResponse.FromString(self._send(self._plan, message, timeout, request_id))

    def operators(self, timeout: float) -> list[pb.OperatorInfo]:
        """What the server lists."""
        data = self._send(self._list_operators, b"", timeout)
        return list(pb.ListOperatorsResponse.FromString(data).operators)

    def operator(self, name: str, variant: str, timeout: float) -> pb.OperatorInfo:
        """One operator of the server."""
        request = pb.GetOperatorRequest(operator=name, variant=variant).SerializeToString()
        data = self._send(self._get_operator, request, timeout)
        return pb.GetOperatorResponse.FromString(data).operator

    def server_info(self, timeout: float) -> pb.GetServerInfoResponse:
        """What the server is."""
        data = self._send(self._get_server_info, b"", timeout)
        return pb.GetServerInfoResponse.FromString(data)

    def close(self) -> None:
        """Closes the channel; calls under way are cancelled."""
        self._channel.close()

    def _method(self, name: str) -> Callable[..., bytes]:
        method: Callable[..., bytes] = self._channel.unary_unary(f"/{_SERVICE}/{name}")  # type: ignore[call-arg]
        return method

    def _send(
        self, method: Callable[..., bytes], request: bytes, timeout: float, request_id: str = ""
    ) -> bytes:
        metadata = ((REQUEST_ID, request_id),) if request_id else None
        try:
            return method(request, timeout=timeout, metadata=metadata)
        except grpc.RpcError as error:
            self._fail(error, timeout)

    def _fail(self, error: Any, timeout: float) -> NoReturn:
        """Raises the error that the server raised, or what gRPC's own means."""
        trailers = dict(error.trailing_metadata() or ())
        known: NpucallError = from_status(error.code(), error.details(), trailers.get(TRAILER))
        if isinstance(known, DeadlineError) and TRAILER not in trailers:
            if not self._connected():
                raise self._unreachable(timeout) from error
            raise DeadlineError(f"call: its timeout of {timeout:g} s ended") from error
        raise known from error

    def _connected(self) -> bool:
        # What gRPC has for it in public answers later, in a thread that breaks when the channel is
        # closed meanwhile.
        core: Any = self._channel._channel  # type: ignore[attr-defined]  # noqa: SLF001
        state: int = core.check_connectivity_state(False)  # noqa: FBT003  # do not connect
        return state == grpc.ChannelConnectivity.READY.value[0]

    def _unreachable(self, seconds: float) -> ServerUnreachableError:
        return ServerUnreachableError(
            f"target: expected a server at {self._target}, found none in {seconds:g} s; "
            "start one with npucall-server, or mend the target (NPUCALL_TARGET)"
        )

    def _check_size(self, request: Request, size: int) -> None:
        limits = self._limits
        room = {
            "max_message_bytes": min(limits.max_message_bytes or _GRPC_MAX, _GRPC_MAX),
            "memory_limit": limits.memory_limit or _GRPC_MAX,
        }
        setting, limit = min(room.items(), key=lambda item: item[1])
        if size > limit:
            name, data = max(request.storage.items(), key=lambda item: len(item[1]))
            raise TooLargeError(
                f"request: expected at most {limit} bytes, the server's {setting}, found {size}; "
                f"the largest tensor is {name} with {len(data)}",
                parameter=name,
                limit=str(limit),
                setting=setting,
            )
