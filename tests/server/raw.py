"""The other end of a stream, which knows the generated classes and nothing of npucall's framing."""

import queue
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall_server.services.operators import NAME

from .fakes import INPUTS, PATIENCE
from .serving import Served

Metadata = Sequence[tuple[str, str]]

MANY = (("npucall-frames-per-message", "64"),)
"""Metadata of a peer that takes messages of several frames."""
TRAILER = "grpc-status-details-bin"


def info_of(status: bytes) -> ErrorInfo:
    """What google.rpc's own classes read in a status."""
    info = ErrorInfo()
    assert Status.FromString(status).details[0].Unpack(info)
    return info


@contextmanager
def channel_to(target: str) -> Iterator[Any]:
    """A connection of its own."""
    with grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield channel


def call_of(elements: int, operator: str = "aclnnL1LossBackward") -> pb.Call:
    """A call with three inputs of as many float32."""
    spec = tensor_pb2.TensorSpec(dtype=tensor_pb2.DATA_TYPE_FLOAT, shape=[elements])
    arguments = [pb.Argument(name=name, stored=True, tensor=spec) for name in INPUTS]
    return pb.Call(operator=operator, arguments=arguments)


def message_of(frames: Sequence[pb.ExecuteStreamRequest]) -> bytes:
    """One message of several frames."""
    message = pb.ExecuteStreamRequest()
    message.CopyFrom(frames[0])
    message.more.extend(frames[1:])
    return message.SerializeToString()


class RawStream:
    """Sends what a test says, receives frame by frame."""

    def __init__(
        self, channel: Any, timeout: float | None = PATIENCE, metadata: Metadata = ()
    ) -> None:
        self._frames: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._held: list[pb.ExecuteStreamRequest] | None = None
        self._received: deque[pb.ExecuteStreamResponse] = deque()
        self.most_frames = self.received_bytes = 0
        """The most frames that came in one message; the bytes of all of them."""
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
        self._held = held = list[pb.ExecuteStreamRequest]()
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

    def chunks(self, call_id: int, size: int = 8) -> None:
        """All storages, of zeros, and the end."""
        for storage in range(3):
            self.chunk(call_id, storage, 0, bytes(size))
        self.end(call_id)

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

    def ids(self, count: int) -> list[int]:
        """The calls of so many frames that come next."""
        return [self.receive().call_id for _ in range(count)]

    def kinds(self, count: int) -> list[str | None]:
        """What so many frames are that come next."""
        return [self.receive().WhichOneof("frame") for _ in range(count)]

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
            return found, info_of(dict(self.call.trailing_metadata())[TRAILER]).reason

    def error(self, call_id: int) -> ErrorInfo:
        """The error that comes next, which must be of that call."""
        frame = self.receive()
        assert (frame.call_id, frame.WhichOneof("frame")) == (call_id, "error")
        return info_of(frame.error)

    def reason(self, call_id: int) -> str:
        return self.error(call_id).reason

    def reasons(self, count: int) -> dict[int, str]:
        """The reasons of the errors that come next, by call."""
        frames = [self.receive() for _ in range(count)]
        return {frame.call_id: info_of(frame.error).reason for frame in frames}

    def end_of_stream(self) -> str:
        """The reason with which the stream ends, without another frame; OK if there is none."""
        found, reason = self.answers()
        assert not found
        return reason


@contextmanager
def stream(
    served: Served, timeout: float | None = PATIENCE, metadata: Metadata = ()
) -> Iterator[RawStream]:
    """A stream over a connection of its own."""
    with channel_to(served.target) as channel:
        peer = RawStream(channel, timeout, metadata)
        try:
            yield peer
        finally:
            peer.call.cancel()
            peer.close()
