"""A server of streams in this process, on a scripted device, and the other end of a stream.

The other end knows the generated classes and nothing of npucall's own framing.
"""

from __future__ import annotations

import io
import json
import queue
import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall.wire.replies import ServerIdentity
from npucall_server import grpc_server
from npucall_server.access.guard import OpenGuard
from npucall_server.budget import Budget
from npucall_server.execution.executions import Executions
from npucall_server.execution.placed import Places
from npucall_server.executor import Executor, Limits
from npucall_server.handling import Handling
from npucall_server.kept_memory import KeptMemory
from npucall_server.log import Log
from npucall_server.peers import Peers
from npucall_server.services.access import AccessService
from npucall_server.services.account import AccountService
from npucall_server.services.operators import NAME, OperatorService
from npucall_server.services.sessions.kept import Kept
from npucall_server.services.sessions.service import SessionService
from npucall_server.services.streams.service import StreamService
from npucall_server.sessions.digests import Digests
from npucall_server.sessions.setup import sessions_of
from npucall_server.settings import ServerSettings
from npucall_server.shared.regions import Regions
from npucall_server.usage import Usage
from npucall_server.watch import Watch

from .scripted import PATIENCE, ScriptedDevice, is_at_rest, open_gate, until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from npucall_server.access.guard import Guard
    from npucall_server.gate import Gate

IDENTITY = ServerIdentity("0123456789ab", "scripted", "Ascend910B1")
_READERS = ("npucall-stream", "npucall-upload")
INPUTS = ("grad_output", "self", "target")


def call_of(elements: int, operator: str = "aclnnL1LossBackward") -> pb.Call:
    """A call with three inputs of as many float32."""
    spec = tensor_pb2.TensorSpec(dtype=tensor_pb2.DATA_TYPE_FLOAT, shape=[elements])
    arguments = [pb.Argument(name=name, stored=True, tensor=spec) for name in INPUTS]
    return pb.Call(operator=operator, arguments=arguments)


class Served:
    """A server, its executor, and what it wrote to its log."""

    def __init__(
        self,
        device: ScriptedDevice,
        gate: Gate | None = None,
        guard: Guard | None = None,
        **settings: Any,
    ) -> None:
        given = ServerSettings(**settings)
        limits = Limits(given.queue_length, given.memory_limit, given.call_timeout)
        budget = Budget.of(given, descriptors=64)
        self.usage = Usage(operator.name for operator in device.catalogue)
        self.executor = Executor(device, limits, usage=self.usage)
        self.regions = Regions(given.shared_memory_limit, self.executor.memory)
        self.gate = gate or open_gate()
        kept = KeptMemory(1 << 40)
        executor = self.executor
        self.sessions = sessions_of(
            given, device, IDENTITY.instance, executor.memory, executor.quotas
        )
        self.digests = Digests(given.digest_cache_bytes, self.executor.memory)
        places = Places(self.regions, self.sessions, self.digests)
        executions = Executions(self.executor, IDENTITY, places, kept, self.gate)
        operators = OperatorService(executions, given, budget, IDENTITY)
        self.streams = StreamService(executions, given, budget)
        self._log = io.StringIO()
        log = Log(stream=self._log)
        peers = Peers(log, given.peer_timeout)
        self.watch = Watch(0.02, log, peers.look, self.sessions.look)
        self.watch.start()
        services = grpc_server.Services(
            Handling(IDENTITY, log, peers, guard or OpenGuard(), (self.usage.called,)),
            budget,
            lambda: True,
        )
        account = AccountService(self.usage, self.executor, self.streams.places, self.gate)
        self.kept = Kept(
            self.sessions, self.digests, self.executor, self.gate, self.streams.places,
            budget.chunk_bytes,
        )  # fmt: skip
        self.grpc = grpc_server.server(given, budget, device.lanes)
        self.grpc.add_generic_rpc_handlers(
            services.handlers(
                operators,
                self.streams,
                AccessService(self.gate, account),
                SessionService(self.kept, IDENTITY),
            )
        )
        self.target = f"127.0.0.1:{self.grpc.add_insecure_port('127.0.0.1:0')}"
        self.grpc.start()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.getvalue().splitlines()]

    def is_idle(self) -> bool:
        """No call is left and no byte is counted, but for those kept by digests."""
        return is_at_rest(self.executor, self.digests.used)

    def is_at_rest(self) -> bool:
        """And no stream is open, no thread reads one."""
        reading = [t for t in threading.enumerate() if t.name in _READERS]
        return self.is_idle() and not reading and not self.streams._streams


@contextmanager
def serving(
    device: ScriptedDevice | None = None,
    gate: Gate | None = None,
    guard: Guard | None = None,
    **settings: Any,
) -> Iterator[Served]:
    """A server that must be at rest when it ends, whatever its streams did."""
    served = Served(device or ScriptedDevice(), gate, guard, **settings)
    try:
        yield served
        until(served.is_at_rest, "the server is at rest")
    finally:
        served.grpc.stop(0).wait()
        served.watch.stop()
        served.streams._threads.shutdown()


MANY = (("npucall-frames-per-message", "64"),)
"""Metadata of a peer that takes messages of several frames."""


def message_of(frames: Sequence[pb.ExecuteStreamRequest]) -> bytes:
    """One message of several frames."""
    message = pb.ExecuteStreamRequest()
    message.CopyFrom(frames[0])
    message.more.extend(frames[1:])
    return message.SerializeToString()


class Peer:
    """The other end of a stream: sends what a test says, receives frame by frame."""

    def __init__(
        self,
        channel: grpc.Channel,
        timeout: float | None = PATIENCE,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> None:
        self._frames: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._held: list[pb.ExecuteStreamRequest] | None = None
        self._received: deque[pb.ExecuteStreamResponse] = deque()
        self.most_frames = 0
        """That came in one message."""
        self.received_bytes = 0
        self.call: Any = channel.stream_stream(f"/{NAME}/ExecuteStream")(
            iter(self._frames.get, None), timeout=timeout, metadata=metadata
        )

    def send(self, call_id: int = 0, **frame: Any) -> None:
        request = pb.ExecuteStreamRequest(call_id=call_id, **frame)
        if self._held is None:
            self.send_bytes(request.SerializeToString())
        else:
            self._held.append(request)

    @contextmanager
    def one_message(self) -> Iterator[None]:
        """Whatever is sent within goes in one message."""
        self._held = held = []
        yield
        self._held = None
        self.send_bytes(message_of(held))

    def send_bytes(self, message: bytes) -> None:
        self._frames.put(message)

    def begin(self, call_id: int, elements: int = 2, **begin: Any) -> None:
        """Opens a call whose storages stand in the frame, of zeros."""
        storage = [tensor_pb2.Storage(data=bytes(4 * elements))] * 3
        request = pb.ExecuteRequest(call=call_of(elements), storage=storage)
        self.send(call_id, begin=pb.Begin(request=request, **begin))

    def begin_chunked(self, call_id: int, elements: int = 2, **begin: Any) -> None:
        """Opens a call whose storages follow."""
        request = pb.ExecuteRequest(call=call_of(elements))
        self.send(call_id, begin=pb.Begin(request=request, chunked=True, **begin))

    def chunk(self, call_id: int, storage: int, offset: int, data: bytes) -> None:
        self.send(call_id, chunk=pb.Chunk(storage=storage, offset=offset, data=data))

    def end(self, call_id: int) -> None:
        self.send(call_id, end=pb.End())

    def cancel(self, call_id: int) -> None:
        self.send(call_id, cancel=pb.Cancel())

    def renew(self, authorization: str) -> None:
        self.send(credential=pb.Credential(authorization=authorization))

    def close(self) -> None:
        """Says that nothing more will be sent."""
        self._frames.put(None)

    def receive(self) -> pb.ExecuteStreamResponse:
        if not self._received:
            data = next(self.call)
            self.received_bytes += len(data)
            message = pb.ExecuteStreamResponse.FromString(data)
            self._received += (message, *message.more)
            self.most_frames = max(self.most_frames, len(self._received))
        return self._received.popleft()

    def answers(self) -> tuple[dict[int, list[pb.ExecuteStreamResponse]], str]:
        """All frames that come, by call, and the reason with which the stream ends."""
        found: dict[int, list[pb.ExecuteStreamResponse]] = {}
        try:
            while True:
                frame = self.receive()
                found.setdefault(frame.call_id, []).append(frame)
        except StopIteration:
            return found, "OK"
        except grpc.RpcError:
            return found, info_of(
                dict(self.call.trailing_metadata())["grpc-status-details-bin"]
            ).reason

    def reason(self, call_id: int) -> str:
        """The reason of the error that comes next, which must be of that call."""
        frame = self.receive()
        assert (frame.call_id, frame.WhichOneof("frame")) == (call_id, "error")
        return info_of(frame.error).reason

    def reason_of_any(self) -> str:
        """The reason of the error that comes next."""
        return info_of(self.receive().error).reason

    def end_of_stream(self) -> str:
        """The reason with which the stream ends, without another frame; OK if there is none."""
        try:
            frame = next(self.call, None)
        except grpc.RpcError:
            return info_of(dict(self.call.trailing_metadata())["grpc-status-details-bin"]).reason
        assert frame is None
        return "OK"


@contextmanager
def stream(
    served: Served,
    timeout: float | None = PATIENCE,
    metadata: Sequence[tuple[str, str]] = (),
) -> Iterator[Peer]:
    """A stream over a connection of its own."""
    with grpc.insecure_channel(
        served.target, options=[("grpc.use_local_subchannel_pool", 1)]
    ) as channel:
        peer = Peer(channel, timeout, metadata)
        try:
            yield peer
        finally:
            peer.call.cancel()
            peer.close()


def info_of(status: bytes) -> ErrorInfo:
    """What google.rpc's own classes read in a status."""
    info = ErrorInfo()
    assert Status.FromString(status).details[0].Unpack(info)
    return info
