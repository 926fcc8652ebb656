"""A directory that says what a test tells it, over gRPC as a real one does."""

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from tests.client.pool.heard import until

from npucall.errors import NpucallError
from npucall.v1 import directory_service_pb2 as pb
from npucall.v1 import operator_service_pb2
from npucall.wire import keepalive
from npucall.wire.status import AUTHORIZATION, TRAILER, to_status

_NAME = pb.DESCRIPTOR.services_by_name["DirectoryService"].full_name
SERVING, DRAINING = pb.MEMBER_STATE_SERVING, pb.MEMBER_STATE_DRAINING
SUSPECT, GONE = pb.MEMBER_STATE_SUSPECT, pb.MEMBER_STATE_GONE


def member(address: str, state: Any = SERVING, **load: Any) -> pb.Member:
    server = operator_service_pb2.ServerIdentity(instance=f"of {address}", device="cpu", soc="X")
    return pb.Member(
        address=address, server=server, state=state, load=pb.MemberLoad(lanes=1, **load)
    )


class FakeDirectory:
    """Its table is what the test says; each who watches has it whole, then what is said."""

    def __init__(self, port: int = 0, epoch: int = 1, *, complete: bool = True) -> None:
        self.epoch, self.complete = epoch, complete
        self.table: dict[str, pb.Member] = {}
        self.watched = 0
        """How often somebody has begun to watch."""
        self.authorizations: list[str] = []
        self.refusal: NpucallError | None = None
        self.is_silent = False
        self._lock = threading.Lock()
        self._watchers: list[queue.SimpleQueue[pb.WatchMembersResponse | None]] = []
        self._server = grpc.server(
            ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0), *keepalive.SERVER]
        )
        watch = grpc.unary_stream_rpc_method_handler(
            self._watch,
            request_deserializer=pb.WatchMembersRequest.FromString,
            response_serializer=pb.WatchMembersResponse.SerializeToString,
        )
        handler = grpc.method_handlers_generic_handler(_NAME, {"WatchMembers": watch})
        self._server.add_generic_rpc_handlers((handler,))
        self.port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        assert self.port
        self.address = f"127.0.0.1:{self.port}"
        self._server.start()

    def stop(self) -> None:
        self.end_streams()
        self._server.stop(0).wait()

    def end_streams(self) -> None:
        """As a directory does of which somebody reads too slowly."""
        with self._lock:
            for each in self._watchers:
                each.put(None)

    def say(
        self, *changed: pb.Member | str, gone: tuple[str, ...] = (), complete: bool | None = None
    ) -> None:
        """Changes the table, and tells those who watch."""
        members = [member(each) if isinstance(each, str) else each for each in changed]
        with self._lock:
            self.complete = self.complete if complete is None else complete
            self.table |= {each.address: each for each in members}
            for address in gone:
                self.table.pop(address, None)
            for each in self._watchers:
                each.put(self._message(members, gone))

    def _message(self, changed: Any, gone: tuple[str, ...] = ()) -> pb.WatchMembersResponse:
        return pb.WatchMembersResponse(
            epoch=self.epoch, complete=self.complete, changed=changed, gone=gone
        )

    def _watch(
        self, request: pb.WatchMembersRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.WatchMembersResponse]:
        sent = dict(context.invocation_metadata())
        messages: queue.SimpleQueue[pb.WatchMembersResponse | None] = queue.SimpleQueue()
        with self._lock:
            self.watched += 1
            self.authorizations.append(str(sent.get(AUTHORIZATION, "")))
            messages.put(self._message([*self.table.values()]))
            self._watchers.append(messages)
        if self.refusal is not None:
            context.set_trailing_metadata(((TRAILER, to_status(self.refusal).SerializeToString()),))
            context.abort(self.refusal.code, str(self.refusal))
        context.add_callback(lambda: messages.put(None))
        until(lambda: not (self.is_silent and context.is_active()), "it may speak")
        while (message := messages.get()) is not None:
            message.version = 1
            yield message


@contextmanager
def fake_directory(**options: Any) -> Iterator[FakeDirectory]:
    directory = FakeDirectory(**options)
    try:
        yield directory
    finally:
        directory.stop()
