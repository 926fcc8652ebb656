"""What carried a call makes no difference: beside gRPC, a carrier of some lines in this process."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from types import SimpleNamespace
from typing import Any, NoReturn

import grpc
import pytest
from tests.server.fakes import PATIENCE, until
from tests.server.raw import TRAILER, call_of, channel_to, info_of
from tests.server.serving import Served, serving

from npucall.errors import NpucallError
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall_server.access.identity import anybody
from npucall_server.carriers.door import Door, Visit
from npucall_server.carriers.peers import Visitor

STORAGE = [tensor_pb2.Storage(data=bytes(8))] * 3
GOOD = pb.ExecuteRequest(call=call_of(2), storage=STORAGE)
UNKNOWN = pb.ExecuteRequest(call=call_of(2, "aclnnX"), storage=STORAGE)
CHUNKED = pb.Begin(request=pb.ExecuteRequest(call=call_of(2)), chunked=True)
FRAMES: list[dict[str, Any]] = [
    {"call_id": 1, "begin": pb.Begin(request=GOOD)},
    {"call_id": 2, "begin": pb.Begin(request=UNKNOWN)},
    {"call_id": 3, "begin": CHUNKED},
    *({"call_id": 3, "chunk": pb.Chunk(storage=each, data=bytes(8))} for each in range(3)),
    {"call_id": 3, "end": pb.End()},
]
PEER = "ipv4:127.0.0.1:1"
ID = "npucall-request-id"
VARYING = {"time", "peer", "request_id"}


class DirectCaller(Visitor):
    """A caller in this process, who waits until it has been answered."""

    def __init__(self) -> None:
        self.peer, self.identity, self.owner = PEER, anybody(PEER), PEER
        self.metadata, self.request_id = {ID: "mine"}, "mine"
        self.connection = SimpleNamespace(peer_identities=bool, auth_context=dict)
        self.time_remaining, self.is_active, self.cancel = lambda: None, lambda: True, self.close
        self._callbacks: list[Callable[[], None]] = []
        self.add_callback = lambda callback: not self._callbacks.append(callback)

    def refuse(self, error: NpucallError) -> NoReturn:
        raise error

    def close(self) -> None:
        for callback in self._callbacks:
            callback()


class Direct:
    """The carrier: bytes in, bytes out."""

    def __init__(self, served: Served) -> None:
        self._served = served
        core = served.core
        self._door = Door(core.identity, core.log, core.guard)

    def execute(self, request: bytes) -> bytes:
        execute = self._served.parts.methods.operators.execute
        with closing(DirectCaller()) as caller, Visit(self._door, "Execute", caller) as visit:
            visit.record.request_bytes = len(request)
            answer = execute(request, visit.record, caller)
            visit.record.response_bytes = len(answer)
        return answer

    def execute_stream(self, messages: Sequence[bytes]) -> list[bytes]:
        exchange, read = self._served.streams.execute_stream, self._served.core.peers.read
        with closing(DirectCaller()) as caller, Visit(self._door, "ExecuteStream", caller) as visit:
            visit.is_quiet = True
            return list(read(exchange(iter(messages), visit.record, caller), caller))


class Grpc:
    """The same over gRPC."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def execute(self, request: bytes) -> bytes:
        method = self._channel.unary_unary("/npucall.v1.OperatorService/Execute")
        answer: bytes = method(request, timeout=PATIENCE, metadata=[(ID, "mine")])
        return answer

    def execute_stream(self, messages: Sequence[bytes]) -> list[bytes]:
        method = self._channel.stream_stream("/npucall.v1.OperatorService/ExecuteStream")
        return list(method(iter(messages), timeout=PATIENCE, metadata=[(ID, "mine")]))


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as served:
        yield served


@pytest.fixture
def carriers(served: Served) -> Iterator[list[Direct | Grpc]]:
    with channel_to(served.target) as channel:
        yield [Grpc(channel), Direct(served)]


def answered(carrier: Direct | Grpc, request: pb.ExecuteRequest) -> object:
    """The outputs, or the error as a caller sees it."""
    try:
        response = pb.ExecuteResponse.FromString(carrier.execute(request.SerializeToString()))
    except grpc.RpcError as error:
        info = info_of(dict(error.trailing_metadata())[TRAILER])  # type: ignore[attr-defined]
        return info.reason, dict(info.metadata)
    except NpucallError as error:
        return error.reason, dict(error.details)
    return response.reply.variant, [each.data for each in response.storage]


def frames_of(answers: Sequence[bytes]) -> dict[int, list[object]]:
    """What the frames of each call say, without times."""
    found: dict[int, list[object]] = {}
    for message in map(pb.ExecuteStreamResponse.FromString, answers):
        for frame in (message, *message.more):
            kind = frame.WhichOneof("frame")
            said: object = [each.data for each in frame.reply.storage]
            if kind == "error":
                info = info_of(frame.error)
                said = info.reason, info.metadata["operator"]
            elif kind == "chunk":
                said = frame.chunk.data
            found.setdefault(frame.call_id, []).append((kind, said))
    return found


def told(served: Served, count: int) -> list[dict[str, Any]]:
    """Lines of calls, but for what differs between any two of them."""
    until(lambda: len(served.events("call")) == count, "all lines are written")
    return [
        {key: value for key, value in line.items() if key not in VARYING and key[-3:] != "_ns"}
        for line in served.events("call")
    ]


@pytest.mark.parametrize("request_", [GOOD, UNKNOWN], ids=["good", "refused"])
def test_a_call_of_one_message_has_the_same_answer_and_line(
    served: Served, carriers: list[Direct | Grpc], request_: pb.ExecuteRequest
) -> None:
    grpcs, direct = (answered(each, request_) for each in carriers)
    assert direct == grpcs
    first, second = told(served, 2)
    assert first == second


def test_a_stream_has_the_same_frames_and_lines(
    served: Served, carriers: list[Direct | Grpc]
) -> None:
    messages = [pb.ExecuteStreamRequest(**frame).SerializeToString() for frame in FRAMES]
    grpcs, direct = (frames_of(each.execute_stream(messages)) for each in carriers)
    assert direct == grpcs
    assert direct.keys() == {1, 2, 3}
    lines = told(served, 6)
    by_operator = [sorted(map(str, some)) for some in (lines[:3], lines[3:])]
    assert by_operator[0] == by_operator[1]
