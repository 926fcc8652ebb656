"""A fake server over gRPC, in the generated classes and nothing of npucall's own.

Unless a test says otherwise it answers a call with the bytes of its first storage.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
from tests.client.pool.heard import PATIENCE, until

import npucall_client
from npucall.errors import NpucallError
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall.wire.status import TRAILER, to_status
from npucall_client import Client
from npucall_client.sending.pipeline import PendingCall, Pipeline

Frames = Iterator[pb.ExecuteStreamRequest]
Answers = Iterator[pb.ExecuteStreamResponse]
Behaviour = Callable[[Frames, grpc.ServicerContext], Answers]

__all__ = ["PATIENCE", "until"]  # beside what is defined here
Answer = Callable[[bytes, grpc.ServicerContext], bytes]
"""To a call in one message."""
KIB, MIB = 2**10, 2**20
ONE = np.ones((), np.float32)


class FakeServer:
    """Records what it is asked; ``streams`` counts those that were opened."""

    def __init__(self) -> None:
        self.limits = pb.Limits(stream_window=4)
        self.told = pb.GetServerInfoResponse()
        """What else it says it is."""
        self.answer: Answer = echo_once
        self.behaviours: list[Behaviour] = []
        """One for each stream, in order; the others echo."""
        self.streams = 0
        self.begins: list[pb.Begin] = []
        self.chunks: list[int] = []
        """Sizes, of all streams."""
        self.frames: list[int] = []
        """Of each message of a stream."""
        self.metadata: list[dict[str, Any]] = []
        """Of each call in one message."""
        self.asked = threading.Event()
        self.guard: Callable[[grpc.ServicerContext], None] = lambda _: None
        """Looks at every call and stream."""
        self.renewals: list[str] = []
        """Credentials that streams were told."""
        self._lock = threading.Lock()

    @property
    def unary(self) -> int:
        """How many calls came in one message."""
        return len(self.metadata)

    def info(self, _: bytes, context: grpc.ServicerContext) -> bytes:
        self.guard(context)
        self.told.limits.CopyFrom(self.limits)
        return self.told.SerializeToString()

    def execute(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self.guard(context)
        self.metadata.append(dict(context.invocation_metadata()))
        self.asked.set()
        return self.answer(request, context)

    def stream(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        self.guard(context)
        with self._lock:
            index, self.streams = self.streams, self.streams + 1
        behaviour = self.behaviours[index] if index < len(self.behaviours) else echo
        for answer in behaviour(self._noted(messages), context):
            yield answer.SerializeToString()

    def _noted(self, messages: Iterator[bytes]) -> Frames:
        for message in messages:
            first = pb.ExecuteStreamRequest.FromString(message)
            self.frames.append(1 + len(first.more))
            for frame in (first, *first.more):
                if frame.HasField("credential"):
                    self.renewals.append(frame.credential.authorization)
                    continue
                if frame.HasField("begin"):
                    self.begins.append(frame.begin)
                elif frame.HasField("chunk"):
                    self.chunks.append(len(frame.chunk.data))
                yield frame


# Calls in one message.


def echo_once(request: bytes, _: grpc.ServicerContext) -> bytes:
    data = pb.ExecuteRequest.FromString(request).storage[0].data
    return reply_of(data).SerializeToString()


def refuse(code: grpc.StatusCode, message: str = "refused") -> Answer:
    """As gRPC or a proxy does, without our trailer."""
    return lambda _, context: context.abort(code, message)


def fail(error: NpucallError) -> Answer:
    def answer(_: bytes, context: grpc.ServicerContext) -> bytes:
        status = to_status(error)
        context.set_trailing_metadata(((TRAILER, status.SerializeToString()),))
        context.abort(error.code, status.message)

    return answer


def in_turn(*answers: Answer) -> Answer:
    """Each of them once, the last one for ever."""
    left = list(answers)

    def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
        each = left.pop(0) if len(left) > 1 else left[0]
        return each(request, context)

    return answer


# Streams.


def echo(
    frames: Frames, context: grpc.ServicerContext, errors: Sequence[NpucallError] = ()
) -> Answers:
    """Answers every call with its first storage, in one frame, as soon as it is complete.

    ``errors``: of the first calls, each at its first frame.
    """
    data: dict[int, bytearray] = {}
    left = list(errors)
    for frame in frames:
        call_id = frame.call_id
        if frame.HasField("begin") and left:
            yield answer(call_id, error=to_status(left.pop(0)).SerializeToString())
        elif frame.HasField("begin"):
            storage = frame.begin.request.storage
            data[call_id] = bytearray(storage[0].data if storage else b"")
            if not frame.begin.chunked:
                yield answer(call_id, reply=reply_of(bytes(data.pop(call_id))))
        elif frame.HasField("chunk") and frame.chunk.storage == 0 and call_id in data:
            data[call_id] += frame.chunk.data
        elif frame.HasField("end") and call_id in data:
            yield answer(call_id, reply=reply_of(bytes(data.pop(call_id))))


def complete(frames: Frames) -> int:
    """Reads until a call is complete; its id."""
    for frame in frames:
        if frame.HasField("end") or (frame.HasField("begin") and not frame.begin.chunked):
            return frame.call_id
    raise AssertionError("the stream ended")


def broken(code: grpc.StatusCode, after: int = 1) -> Behaviour:
    """Ends the stream after so many frames."""

    def behaviour(frames: Frames, context: grpc.ServicerContext) -> Answers:
        for _ in range(after):
            next(frames, None)
        context.abort(code, "broken")
        yield from ()

    return behaviour


def silent(frames: Frames, context: grpc.ServicerContext) -> Answers:
    """Reads all, answers nothing."""
    for _ in frames:
        pass
    yield from ()


def refusing(*errors: NpucallError) -> Behaviour:
    """Refuses the first calls, each at its first frame, and answers the others."""
    return lambda frames, context: echo(frames, context, errors)


def answer(call_id: int, **frame: Any) -> pb.ExecuteStreamResponse:
    return pb.ExecuteStreamResponse(call_id=call_id, **frame)


def reply_of(data: bytes, *, inline: bool = True) -> pb.ExecuteResponse:
    """A reply of the operator that the tests call: one output of float32."""
    spec = tensor_pb2.TensorSpec(dtype=tensor_pb2.DATA_TYPE_FLOAT, shape=[len(data) // 4])
    reply = pb.Reply(outputs=[pb.Argument(name="grad_input", stored=True, tensor=spec)])
    storage = [tensor_pb2.Storage(data=data)] if inline else []
    return pb.ExecuteResponse(reply=reply, storage=storage)


# Clients of it.


@contextmanager
def grpc_server(
    methods: dict[str, Any],
    *options: tuple[str, int],
    credentials: grpc.ServerCredentials | None = None,
) -> Iterator[str]:
    """The target of a server that has these methods."""
    server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0), *options])
    service = "npucall.v1.OperatorService"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


@contextmanager
def serving(server: FakeServer, credentials: grpc.ServerCredentials | None = None) -> Iterator[str]:
    methods: dict[str, Any] = {
        "GetServerInfo": grpc.unary_unary_rpc_method_handler(server.info),
        "Execute": grpc.unary_unary_rpc_method_handler(server.execute),
        "ExecuteStream": grpc.stream_stream_rpc_method_handler(server.stream),
    }
    options = ("grpc.max_receive_message_length", -1)
    with grpc_server(methods, options, credentials=credentials) as target:
        yield target


@contextmanager
def connected(server: FakeServer, **settings: Any) -> Iterator[Client]:
    with serving(server) as target, npucall_client.connect(target, **settings) as client:
        yield client


@contextmanager
def piped(server: FakeServer, **settings: Any) -> Iterator[Pipeline]:
    with connected(server, **settings) as client, client.pipeline() as pipeline:
        yield pipeline


def numbers(size: int) -> Any:
    """An array of so many bytes."""
    return np.arange(size // 4, dtype=np.float32)


def run(client: Client, array: Any) -> Any:
    return client.run("aclnnL1LossBackward", array, self=ONE, target=ONE)


def submit(pipeline: Pipeline, array: Any, **options: Any) -> PendingCall[Any]:
    return pipeline.submit("aclnnL1LossBackward", array, **{"self": ONE, "target": ONE, **options})
