"""The words of the ``.proto`` files, and callers that have generated stubs and gRPC alone."""

import re
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import grpc
from google.rpc.status_pb2 import Status

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import operator_service_pb2_grpc, tensor_pb2

from . import wire

KL = "aclnnKlDivBackward"
PROTOS = Path(__file__).parents[2] / "proto/npucall/v1"
_COMMENTS = " ".join(
    line.strip().removeprefix("//").strip()
    for path in sorted(PROTOS.glob("*.proto"))
    for line in path.read_text().splitlines()
)
COMMENTS = re.sub(r" +", " ", _COMMENTS)


def says(*sentences: str) -> None:
    """The contract says this: a test begins with the words that it holds."""
    for sentence in sentences:
        assert sentence in COMMENTS


def floats(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def numbers(data: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(data) // 4}f", data)


def kl(*shape: int) -> list[pb.Argument]:
    """Arguments of a valid call: all of one shape, ``self`` not stored."""
    tensors = wire.tensor("grad_output", *shape), wire.tensor("target", *shape)
    reduction = pb.Argument(name="reduction", integer=2)
    return [tensors[0], wire.tensor("self", *shape, stored=False), tensors[1], reduction]


def request(
    operator: str,
    arguments: Sequence[pb.Argument],
    storage: Iterable[bytes | tensor_pb2.Storage] = (),
    places: Sequence[pb.OutputPlace] = (),
) -> pb.ExecuteRequest:
    return pb.ExecuteRequest(
        call=pb.Call(operator=operator, arguments=arguments),
        storage=[
            each if isinstance(each, tensor_pb2.Storage) else tensor_pb2.Storage(data=each)
            for each in storage
        ],
        output_places=places,
    )


PAIR = floats(3.0, 0.5)
GOOD = request(KL, kl(2), [PAIR, PAIR])
ANSWER = (-9.0, -0.25)
"""Of it: -grad_output * target."""


class Caller:
    """Calls with the class that grpcio-tools made."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.stub: Any = operator_service_pb2_grpc.OperatorServiceStub(channel)

    def execute(self, asked: pb.ExecuteRequest, *metadata: tuple[str, str]) -> pb.ExecuteResponse:
        answer: pb.ExecuteResponse = self.stub.Execute(
            asked, timeout=wire.PATIENCE, metadata=metadata
        )
        return answer

    def refused(self, asked: pb.ExecuteRequest, *metadata: tuple[str, str]) -> wire.Details:
        """What Execute answers, which has to be an error."""
        try:
            answer = self.execute(asked, *metadata)
        except grpc.RpcError as error:
            return wire.details_of(error)
        raise AssertionError(f"expected an error, found {answer}")

    def numbers(self, asked: pb.ExecuteRequest) -> list[tuple[float, ...]]:
        """The outputs of Execute as FLOAT."""
        return [numbers(each.data) for each in self.execute(asked).storage]

    def exchange(
        self, *frames: pb.ExecuteStreamRequest, metadata: Sequence[tuple[str, str]] = ()
    ) -> tuple[list[pb.ExecuteStreamResponse], str]:
        """Sends these frames and nothing more; all that comes back, and how the stream ends."""
        call = self.stub.ExecuteStream(iter(frames), timeout=wire.PATIENCE, metadata=metadata)
        answers: list[pb.ExecuteStreamResponse] = []
        try:
            answers.extend(iter(call.__next__, None))
        except grpc.RpcError as error:
            return answers, wire.reason_of(error)
        except StopIteration:
            pass
        return answers, "OK"


def begin(call_id: int, asked: pb.ExecuteRequest = GOOD, **more: Any) -> pb.ExecuteStreamRequest:
    return pb.ExecuteStreamRequest(call_id=call_id, begin=pb.Begin(request=asked, **more))


def chunk(call_id: int, storage: int, offset: int, data: bytes) -> pb.ExecuteStreamRequest:
    part = pb.Chunk(storage=storage, offset=offset, data=data)
    return pb.ExecuteStreamRequest(call_id=call_id, chunk=part)


def end(call_id: int) -> pb.ExecuteStreamRequest:
    return pb.ExecuteStreamRequest(call_id=call_id, end=pb.End())


def kinds(answers: Sequence[pb.ExecuteStreamResponse]) -> list[tuple[int, str]]:
    """Ids and kinds of frames."""
    return [(each.call_id, str(each.WhichOneof("frame"))) for each in answers]


def error_in(answer: pb.ExecuteStreamResponse) -> wire.Details:
    details = wire.details_in(Status.FromString(answer.error))
    assert details is not None
    return details
