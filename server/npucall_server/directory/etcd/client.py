"""Calls etcd: one endpoint at a time, and the next one when that fails."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import grpc

from npucall_server.directory.etcd.v3 import rpc_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

R = TypeVar("R")

_SECONDS = 3.0
"""How long to wait for an answer."""
_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),
    ("grpc.min_reconnect_backoff_ms", 2000),
    # etcd closes connections that ping more often than every 5 s.
    ("grpc.keepalive_time_ms", 6000),
    ("grpc.keepalive_timeout_ms", 3000),
    ("grpc.http2.ping_timeout_ms", 3000),
    ("grpc.http2.max_pings_without_data", 0),
]
_NEEDS_LEADER = (("hasleader", "true"),)
"""Makes etcd end a watch at an endpoint that has lost its cluster."""


class StoreError(Exception):
    """etcd did not do what it was asked to do."""


class Pair(NamedTuple):
    """A key and its value."""

    key: bytes
    value: bytes | None
    """None: the key was deleted."""
    revision: int


class Endpoints(NamedTuple):
    """Where etcd is, and the certificates for the connection."""

    hosts: tuple[str, ...]
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


class EtcdClient:
    """Calls etcd from one thread.

    A method that fails raises StoreError; the next asks another endpoint.
    """

    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints
        self._next = 0
        self._channel: grpc.Channel | None = None

    @property
    def endpoint(self) -> str:
        """The endpoint that is asked now."""
        hosts = self._endpoints.hosts
        return hosts[self._next % len(hosts)]

    def read(self, prefix: bytes) -> tuple[list[Pair], int]:
        """All keys that begin with the prefix, and their revision."""
        request = pb.RangeRequest(key=prefix, range_end=_behind(prefix))
        answer = self._ask("KV/Range", request, pb.RangeResponse)
        pairs = [Pair(each.key, each.value, each.mod_revision) for each in answer.kvs]
        return pairs, answer.header.revision

    def write(self, pairs: Iterable[Pair], lease: int) -> None:
        """Puts and deletes keys in one transaction. Keys that are put live as long as the lease."""
        operations = [
            pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=each.key))
            if each.value is None
            else pb.RequestOp(
                request_put=pb.PutRequest(key=each.key, value=each.value, lease=lease)
            )
            for each in pairs
        ]
        self._ask("KV/Txn", pb.TxnRequest(success=operations), pb.TxnResponse)

    def grant(self, seconds: int) -> int:
        """Gets a lease that ends after so many seconds unless it is kept."""
        request = pb.LeaseGrantRequest(TTL=seconds)
        return self._ask("Lease/LeaseGrant", request, pb.LeaseGrantResponse).ID

    def keep(self, lease: int) -> bool:
        """Renews a lease; False if it has ended."""
        stream = self._stream("Lease/LeaseKeepAlive", pb.LeaseKeepAliveResponse)
        request = pb.LeaseKeepAliveRequest(ID=lease)
        try:
            return next(stream(iter([request]), timeout=_SECONDS)).TTL > 0
        except (grpc.RpcError, StopIteration) as error:
            raise self._failed(error) from error

    def watch(self, prefix: bytes, revision: int) -> Iterator[list[Pair]]:
        """The changes from a revision on, until ``close``.

        StopIteration: etcd no longer has them.
        """
        create = pb.WatchCreateRequest(
            key=prefix, range_end=_behind(prefix), start_revision=revision
        )
        ended = threading.Event()

        def requests() -> Iterator[pb.WatchRequest]:
            yield pb.WatchRequest(create_request=create)
            ended.wait()  # if the requests ended, the watch would end

        stream = self._stream("Watch/Watch", pb.WatchResponse)
        call = stream(requests(), metadata=_NEEDS_LEADER)
        try:
            for answer in call:
                if answer.canceled:  # compacted, or without a leader
                    self._next += 1
                    return
                yield [
                    Pair(
                        each.kv.key,
                        each.kv.value if each.type == each.PUT else None,
                        each.kv.mod_revision,
                    )
                    for each in answer.events
                ]
        except grpc.RpcError as error:
            raise self._failed(error) from error
        finally:
            ended.set()
            call.cancel()

    def close(self) -> None:
        """Ends the calls that are under way."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _ask(self, method: str, request: Any, kind: type[R]) -> R:
        call: Any = self._connected().unary_unary(
            f"/etcdserverpb.{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=kind.FromString,  # type: ignore[attr-defined]
        )
        try:
            answer: R = call(request, timeout=_SECONDS)
        except grpc.RpcError as error:
            raise self._failed(error) from error
        return answer

    def _stream(self, method: str, kind: Any) -> Any:
        return self._connected().stream_stream(
            f"/etcdserverpb.{method}",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=kind.FromString,
        )

    def _connected(self) -> grpc.Channel:
        if self._channel is None:
            self._channel = self._opened()
        return self._channel

    def _opened(self) -> grpc.Channel:
        paths = self._endpoints
        if paths.ca is None:
            return grpc.insecure_channel(self.endpoint, _OPTIONS)
        try:
            named = paths.ca, paths.key, paths.certificate
            files = [None if path is None else path.read_bytes() for path in named]
        except OSError as error:
            raise StoreError(str(error)) from error
        return grpc.secure_channel(self.endpoint, grpc.ssl_channel_credentials(*files), _OPTIONS)

    def _failed(self, error: Any) -> StoreError:
        """The error to raise. The next call asks another endpoint."""
        why = error.details() if isinstance(error, grpc.RpcError) else "it ended the stream"
        fault = StoreError(f"{self.endpoint}: {why}")
        self._next += 1
        self.close()
        return fault


def _behind(prefix: bytes) -> bytes:
    """The first key after all keys that begin with the prefix."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
