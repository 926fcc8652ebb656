"""What the ``.proto`` files say of streams, sessions and programs, tried over a socket."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import grpc
import pytest

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import session_service_pb2, session_service_pb2_grpc, tensor_pb2

from . import wire
from .contract import (
    ANSWER,
    GOOD,
    KL,
    PAIR,
    Caller,
    begin,
    chunk,
    end,
    error_in,
    kinds,
    kl,
    numbers,
    request,
    says,
)


def cancel(call_id: int) -> pb.ExecuteStreamRequest:
    return pb.ExecuteStreamRequest(call_id=call_id, cancel=pb.Cancel())


BARE = request(KL, kl(2))
"""Its storages follow in chunks."""
EMPTY = request(KL, kl(0, 5))
COLUMNS = 300_000
"""Of FLOAT they are more than 1 MiB."""
REPLY = "reply"


# --- Frames, and the end of the stream ------------------------------------------------------------

MALFORMED = "MESSAGE_MALFORMED"
WRONG = request(KL, [wire.tensor("grad_output", 3), *kl(2)[1:]])
ENDLESS = pb.ExecuteRequest.FromString(wire.long_call(*wire.ENDLESS))
CHUNKED = begin(1, BARE, chunked=True)


class Exchange(NamedTuple):
    """Frames that a caller sends and nothing more, ids and kinds of answers, how it ends."""

    says: str
    frames: list[pb.ExecuteStreamRequest]
    answers: list[tuple[int, str]]
    ended: str
    reasons: tuple[str, ...] = ()
    """Of the answers that are errors."""


def ends(sentence: str, *frames: pb.ExecuteStreamRequest, **answers: Any) -> Exchange:
    """The stream ends with an error."""
    return Exchange(sentence, list(frames), answers.get("answers", []), MALFORMED)


def answered(
    sentence: str,
    answers: list[tuple[int, str]],
    *frames: pb.ExecuteStreamRequest,
    reasons: tuple[str, ...] = (),
) -> Exchange:
    return Exchange(sentence, list(frames), answers, "OK", reasons)


LATE = "After a call was refused or answered, its chunks, `end` and `cancel` may still come"
UNKNOWN = "a `chunk` or `end` with an id that no `begin` opened ends the stream"
WRONG_CHUNK = "a chunk does not fit its storage, leaves a gap or comes twice, or bytes are missing"
FREE = "a `cancel` with such an id changes nothing, and `begin` may still use the id"
NO_BYTES = "A storage of 0 bytes needs no chunk; a chunk without data is allowed."
ALL = "the server runs and answers every call that is complete, then ends the stream with OK"
HUNDRED = range(100)
ONE, TWO, ERROR = (1, REPLY), (2, REPLY), (1, "error")
EMPTY_CALL, NOTHING = begin(1, EMPTY, chunked=True), [chunk(1, 0, 0, b""), chunk(1, 1, 0, b"")]
TOO_LATE = [chunk(1, 7, 9, b"xx"), end(1), end(1), cancel(1)]
REFUSED = [begin(1, WRONG, chunked=True), chunk(1, 9, 9, b"xx"), end(1)]
FIRST = chunk(1, 0, 0, PAIR)
EXCHANGES = [
    answered(LATE, [ONE, TWO], begin(1), *TOO_LATE, begin(2)),
    answered(
        "does not look whether they would have fitted", [ERROR, TWO], *REFUSED, begin(2),
        reasons=("SHAPE_MISMATCH",),
    ),
    ends(UNKNOWN, chunk(5, 0, 0, b"x")),
    ends(UNKNOWN, end(5)),
    answered(FREE, [(5, REPLY)], cancel(5), begin(5)),
    answered(
        "its answer is then an error with reason CANCELLED", [ERROR], CHUNKED, cancel(1), end(1),
        reasons=("CANCELLED",),
    ),
    ends("Any number, 0 too; each for one call.", begin(0), begin(0), answers=[(0, REPLY)]),
    answered(ALL, [(number, REPLY) for number in HUNDRED], *map(begin, HUNDRED)),
    ends("If a call is still without its `end` at that time", CHUNKED, FIRST),
    ends("Then calls without an answer get none, even complete ones", begin(1, ENDLESS), end(2)),
    answered(
        "An error of a call is a frame `error` of that call", [ERROR, TWO], begin(1, BARE),
        begin(2), reasons=("TENSOR_LAYOUT",),
    ),
    ends(WRONG_CHUNK, CHUNKED, chunk(1, 0, 4, PAIR[4:])),
    ends(WRONG_CHUNK, CHUNKED, chunk(1, 2, 0, PAIR)),
    ends(WRONG_CHUNK, CHUNKED, FIRST, FIRST),
    ends(WRONG_CHUNK, CHUNKED, FIRST, end(1)),
    answered(NO_BYTES, [ONE], EMPTY_CALL, end(1)),
    answered(NO_BYTES, [ONE], EMPTY_CALL, *NOTHING, end(1)),
    ends(NO_BYTES, EMPTY_CALL),
    answered(
        "none has `data` (MESSAGE_MALFORMED, as the answer to the call)", [ERROR],
        begin(1, GOOD, chunked=True), end(1), reasons=(MALFORMED,),
    ),
]  # fmt: skip


def test_frames_are_answered_and_streams_end_as_the_contract_says(caller: Caller) -> None:
    wrong = []
    for row in EXCHANGES:
        says(row.says)
        answers, ended = caller.exchange(*row.frames)
        reasons = tuple(error_in(each).reason for each in answers if each.error)
        if (sorted(kinds(answers)), ended, reasons) != (row.answers, row.ended, row.reasons):
            wrong.append((row.says, kinds(answers), ended, reasons))
    assert wrong == []


def prelu_backward(*discarded: str) -> list[pb.ExecuteStreamRequest]:
    """Two outputs, each of more than 1 MiB: ``grad_input`` and ``grad_weight``."""
    tensors = [wire.tensor(name, 1, COLUMNS) for name in ("grad_output", "self")]
    places = [pb.OutputPlace(output=name, discard=True) for name in discarded]
    asked = request("aclnnPreluBackward", [*tensors, wire.tensor("weight", COLUMNS)], (), places)
    data = [chunk(1, storage, 0, bytes(4 * COLUMNS)) for storage in range(3)]
    return [begin(1, asked, chunked=True), *data, end(1)]


def test_chunks_of_a_reply_count_outputs_with_a_place(caller: Caller) -> None:
    says(
        "`Chunk.storage` counts all entries of `outputs`.",
        "if the first of two outputs is discarded, the chunks of the second are of storage 1",
    )
    for discarded, expected in ((), {0, 1}), (("grad_input",), {1}), (("grad_weight",), {0}):
        (reply, *chunks, last), _ = caller.exchange(*prelu_backward(*discarded))
        assert (len(reply.reply.reply.outputs), len(reply.reply.storage)) == (2, 0)
        assert {each.chunk.storage for each in chunks} == expected
        assert last.WhichOneof("frame") == "end"
    says("So chunks follow exactly where `reply.storage` is empty and `reply.reply.outputs` is not")
    (reply,), ended = caller.exchange(*prelu_backward("grad_input", "grad_weight"))
    places = [each.WhichOneof("place") for each in reply.reply.storage]
    assert (places, ended) == ([None, None], "OK")


def test_outputs_may_come_before_the_reply(caller: Caller) -> None:
    says("when all of them have come the frame `reply`, without storage, and nothing after it")
    elements, part = 2**21, 2**20
    sent = [
        chunk(1, storage, start, bytes(part))
        for start in range(0, 4 * elements, part)
        for storage in (0, 1)
    ]
    opened = begin(1, request(KL, kl(elements)), chunked=True, early_outputs=True)
    (first, *chunks, last), ended = caller.exchange(opened, *sent, end(1))
    assert (first.resolved, last.reply.storage[:], ended) == (last.reply.reply, [], "OK")
    assert sum(len(each.chunk.data) for each in chunks) == 4 * elements


def test_the_name_of_a_stream_names_no_call(caller: Caller) -> None:
    says("the metadata of the stream names no call")
    frames = begin(1, BARE, request_id="mine"), begin(2, BARE), begin(3, BARE, request_id="y" * 200)
    answers, _ = caller.exchange(*frames, metadata=[("npucall-request-id", "stream")])
    names = {each.call_id: error_in(each).facts["request_id"] for each in answers}
    assert (names[1], names[3]) == ("mine", "y" * 128)
    assert names[2] not in ("", "stream")


def test_several_frames_come_in_a_message_where_the_caller_says_so(caller: Caller) -> None:
    says("`npucall-frames-per-message`, without which it gets one")
    several = begin(1)
    several.more.extend([begin(2), begin(3)])
    answers, _ = caller.exchange(several)
    assert [len(each.more) for each in answers] == [0, 0, 0]
    answers, _ = caller.exchange(several, metadata=[("npucall-frames-per-message", "8")])
    assert sum(1 + len(each.more) for each in answers) == 3


HANDLE, KEPT = b"h" * 16, b"k" * 16


@pytest.fixture
def session(channel: grpc.Channel) -> Iterator[tuple[Any, list[tuple[str, str]]]]:
    """A stub of sessions, and the metadata of one whose HANDLE holds PAIR."""
    stub: Any = session_service_pb2_grpc.SessionServiceStub(channel)
    opened = stub.OpenSession(session_service_pb2.OpenSessionRequest(), timeout=wire.PATIENCE)
    metadata = [("npucall-session", opened.session)]
    entry = session_service_pb2.UploadEntry(handle=HANDLE, length=len(PAIR))
    frames = [
        session_service_pb2.UploadRequest(begin=session_service_pb2.UploadBegin(entries=[entry])),
        session_service_pb2.UploadRequest(chunk=pb.Chunk(data=PAIR)),
        session_service_pb2.UploadRequest(end=pb.End()),
    ]
    stub.Upload(iter(frames), metadata=metadata, timeout=wire.PATIENCE)
    yield stub, metadata
    stub.Close(session_service_pb2.CloseRequest(), metadata=metadata, timeout=wire.PATIENCE)


def test_chunks_of_a_call_count_storages_with_a_place(caller: Caller, session: Any) -> None:
    says("Storages that have a place count.")
    held = tensor_pb2.Storage(handle=tensor_pb2.HandlePart(id=HANDLE, length=len(PAIR)))
    opened = begin(1, request(KL, kl(2), [held, tensor_pb2.Storage()]), chunked=True)
    answers, ended = caller.exchange(opened, chunk(1, 1, 0, PAIR), end(1), metadata=session[1])
    assert (numbers(answers[0].reply.storage[0].data), ended) == (ANSWER, "OK")
    answers, ended = caller.exchange(opened, chunk(1, 0, 0, PAIR), end(1), metadata=session[1])
    assert (answers, ended) == ([], "MESSAGE_MALFORMED")


def test_an_output_that_is_kept_comes_back_as_its_handle(caller: Caller, session: Any) -> None:
    says("In a response: the output was kept, and this is all of it.")
    stub, metadata = session
    place = pb.OutputPlace(output="out", keep=KEPT)
    response = caller.execute(request(KL, kl(2), [PAIR, PAIR], [place]), *metadata)
    (storage,) = response.storage
    assert storage.handle == tensor_pb2.HandlePart(id=KEPT, length=len(PAIR))
    asked = session_service_pb2.DownloadRequest(part=storage.handle)
    (part,) = stub.Download(asked, metadata=metadata, timeout=wire.PATIENCE)
    assert numbers(part.chunk.data) == ANSWER


def test_an_upload_of_0_bytes_needs_no_chunk(session: Any) -> None:
    says("An entry of 0 bytes needs no chunk.")
    stub, metadata = session
    entry = session_service_pb2.UploadEntry(handle=KEPT, length=0)
    frames = [
        session_service_pb2.UploadRequest(begin=session_service_pb2.UploadBegin(entries=[entry])),
        session_service_pb2.UploadRequest(end=pb.End()),
    ]
    answer = stub.Upload(iter(frames), metadata=metadata, timeout=wire.PATIENCE)
    assert list(answer.remembered) == [False]


def test_a_program_has_no_chunks(caller: Caller) -> None:
    says("or a storage has no place, since a program has no chunks")
    step = request(KL, kl(2), [tensor_pb2.Storage(), PAIR])
    program = pb.BeginProgram(request=pb.ExecuteProgramRequest(steps=[step]))
    answers, ended = caller.exchange(pb.ExecuteStreamRequest(call_id=1, program=program))
    assert (error_in(answers[0]).reason, ended) == ("MESSAGE_MALFORMED", "OK")
    assert error_in(answers[0]).facts["step"] == "0"
