"""A server that ends while a method of a session is under way: what callers are told, and do."""

from __future__ import annotations

import hashlib
import os
import secrets
import signal
import struct
import threading
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.npu import running_npu_server

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import session_service_pb2 as sessions
from npucall.v1 import tensor_pb2
from npucall_client.testing import running_server

from . import wire
from .contract import KL, kl, request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Begin = Callable[["SessionCaller", bytes], Any]

SERVICE = "/npucall.v1.SessionService/"
OPERATORS = "/npucall.v1.OperatorService/"
METADATA = "npucall-session"
CHUNK = 1 << 20


def new_handle() -> bytes:
    """An id as callers choose them."""
    return secrets.token_bytes(16)


def part(handle: bytes, length: int) -> tensor_pb2.HandlePart:
    return tensor_pb2.HandlePart(id=handle, length=length)


def product(
    place: tensor_pb2.Storage, count: int, *, keep: bytes = b"", discard: bool = False
) -> pb.ExecuteRequest:
    """A call that answers ``-grad_output * target``, both of which are in this place."""
    place_of_out = pb.OutputPlace(output="out", keep=keep, discard=discard)
    places = [place_of_out] if keep or discard else []
    return request(KL, kl(count), [place] * 2, places)


def of_handle(handle: bytes, count: int, *, keep: bytes = b"") -> pb.ExecuteRequest:
    return product(tensor_pb2.Storage(handle=part(handle, 4 * count)), count, keep=keep)


def chain(handle: bytes, count: int, steps: int) -> pb.ExecuteProgramRequest:
    """A program of so many of them; what comes between is discarded."""
    places = [tensor_pb2.Storage(handle=part(handle, 4 * count))]
    for step in range(steps - 1):
        result = tensor_pb2.StepOutput(step=step, output="out")
        places.append(tensor_pb2.Storage(result=result))
    calls = [product(place, count, discard=True) for place in places[:-1]]
    calls.append(product(places[-1], count, keep=new_handle()))
    return pb.ExecuteProgramRequest(steps=calls)


def upload_frames(
    entries: Mapping[bytes, bytes], *, constant: bool = False, chunk: int = CHUNK
) -> Iterator[sessions.UploadRequest]:
    """The frames that fill handles with bytes."""
    begin = [
        sessions.UploadEntry(
            handle=handle,
            length=len(data),
            digest=hashlib.sha256(data).digest() if constant else b"",
        )
        for handle, data in entries.items()
    ]
    yield sessions.UploadRequest(begin=sessions.UploadBegin(entries=begin))
    for index, data in enumerate(entries.values()):
        for at in range(0, len(data), chunk):
            piece = pb.Chunk(storage=index, offset=at, data=data[at : at + chunk])
            yield sessions.UploadRequest(chunk=piece)
    yield sessions.UploadRequest(end=pb.End())


class SessionCaller:
    """One session of one caller. Errors are gRPC's; ``wire.details_of`` reads them."""

    def __init__(self, channel: grpc.Channel, session: str = "") -> None:
        self.channel = channel
        self.session = session

    @property
    def metadata(self) -> Sequence[tuple[str, str]]:
        return ((METADATA, self.session),) if self.session else ()

    def open(self, lease: float = 0.0, budget: int = 0) -> sessions.OpenSessionResponse:
        """Opens the session that all other methods are about from here on."""
        request = sessions.OpenSessionRequest(lease_seconds=lease, budget_bytes=budget)
        answer = self.ask("OpenSession", request, sessions.OpenSessionResponse)
        self.session = answer.session
        return answer

    def missing(self, *digests: bytes) -> list[bytes]:
        request = sessions.FindMissingRequest(digests=digests)
        return list(self.ask("FindMissing", request, sessions.FindMissingResponse).missing)

    def put(self, data: bytes, *, constant: bool = False, chunk: int = CHUNK) -> bytes:
        """Uploads; the handle."""
        handle = new_handle()
        frames = upload_frames({handle: data}, constant=constant, chunk=chunk)
        self.begin_upload(frames).result(wire.PATIENCE)
        return handle

    def begin_upload(self, frames: Iterator[sessions.UploadRequest]) -> Any:
        method = self.channel.stream_unary(
            f"{SERVICE}Upload",
            sessions.UploadRequest.SerializeToString,
            sessions.UploadResponse.FromString,
        )
        return method.future(frames, metadata=self.metadata, timeout=wire.PATIENCE)

    def download(self, place: tensor_pb2.HandlePart) -> bytes:
        return b"".join(answer.chunk.data for answer in self.begin_download(place))

    def begin_download(self, place: tensor_pb2.HandlePart) -> Any:
        method = self.channel.unary_stream(
            f"{SERVICE}Download",
            sessions.DownloadRequest.SerializeToString,
            sessions.DownloadResponse.FromString,
        )
        request = sessions.DownloadRequest(part=place)
        return method(request, metadata=self.metadata, timeout=wire.PATIENCE)

    def execute(self, request: pb.ExecuteRequest) -> pb.ExecuteResponse:
        return self.ask("Execute", request, pb.ExecuteResponse, OPERATORS)

    def stream(self, frames: Iterator[pb.ExecuteStreamRequest]) -> Any:
        method = self.channel.stream_stream(
            f"{OPERATORS}ExecuteStream",
            pb.ExecuteStreamRequest.SerializeToString,
            pb.ExecuteStreamResponse.FromString,
        )
        return method(frames, metadata=self.metadata, timeout=wire.PATIENCE)

    def ask(self, method: str, request: Any, answer: Any, service: str = SERVICE) -> Any:
        """A method from one message to one."""
        return self.begin(method, request, answer, service).result(wire.PATIENCE)

    def begin(self, method: str, request: Any, answer: Any, service: str = SERVICE) -> Any:
        call = self.channel.unary_unary(
            f"{service}{method}", type(request).SerializeToString, answer.FromString
        )
        return call.future(request, metadata=self.metadata, timeout=wire.PATIENCE)


COUNT = 1 << 18
DATA = struct.pack("<f", 2.0) * COUNT
EXPECTED = struct.pack("<f", -4.0) * COUNT
DIGEST = hashlib.sha256(DATA).digest()


def _request(method: str, message: Any, answer: Any, service: str = "") -> Begin:
    given = (service,) if service else ()
    return lambda caller, _: caller.begin(method, message, answer, *given)


def _release(caller: SessionCaller, handle: bytes) -> Any:
    request = sessions.ReleaseRequest(handles=[handle])
    return caller.begin("Release", request, sessions.ReleaseResponse)


def _download(caller: SessionCaller, handle: bytes) -> Any:
    return Consumed(caller.begin_download(part(handle, len(DATA))))


def _execute(caller: SessionCaller, handle: bytes) -> Any:
    request = of_handle(handle, COUNT, keep=new_handle())
    return caller.begin("Execute", request, pb.ExecuteResponse, OPERATORS)


def _program(caller: SessionCaller, handle: bytes) -> Any:
    request = chain(handle, COUNT, 5)
    return caller.begin("ExecuteProgram", request, pb.ExecuteProgramResponse, OPERATORS)


def _stream(caller: SessionCaller, handle: bytes) -> Any:
    request = of_handle(handle, COUNT, keep=new_handle())
    frames = iter([pb.ExecuteStreamRequest(begin=pb.Begin(request=request))])
    return Consumed(caller.stream(frames))


def _upload(caller: SessionCaller, _: bytes) -> Any:
    return caller.begin_upload(upload_frames({new_handle(): DATA}))


WITHOUT_SESSION: dict[str, Begin] = {
    "OpenSession": _request(
        "OpenSession", sessions.OpenSessionRequest(), sessions.OpenSessionResponse
    ),
    "FindMissing": _request(
        "FindMissing", sessions.FindMissingRequest(digests=[DIGEST]), sessions.FindMissingResponse
    ),
}
WITH_SESSION: dict[str, Begin] = {
    "Upload": _upload,
    "Execute": _execute,
    "ExecuteProgram": _program,
    "ExecuteStream": _stream,
    "Download": _download,
    "Release": _release,
    "Renew": _request("Renew", sessions.RenewRequest(), sessions.RenewResponse),
    "Close": _request("Close", sessions.CloseRequest(), sessions.CloseResponse),
}
METHODS = {**WITH_SESSION, **WITHOUT_SESSION}


class Consumed:
    """The end of a method that answers a stream."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def exception(self, _: float) -> grpc.RpcError | None:
        try:
            for _answer in self._call:
                pass
        except grpc.RpcError as error:
            return error
        return None


def error_of(call: Any) -> Any:
    """What a method ended with; None for OK."""
    return call.exception(wire.PATIENCE)


def filled(channel: grpc.Channel) -> tuple[SessionCaller, bytes]:
    """A session, and a handle of it that holds DATA."""
    caller = SessionCaller(channel)
    caller.open()
    return caller, caller.put(DATA, constant=True)


def check_lost(caller: SessionCaller, handle: bytes, instance: str) -> None:
    """Whatever names a session of the server before is told so, with the instance that it was."""
    for name, begin in WITH_SESSION.items():
        if name in ("Close", "ExecuteStream"):  # no error; errors in frames
            continue
        reason, _, facts = wire.details_of(error_of(begin(caller, handle)))
        assert (name, reason) == (name, "HANDLE_LOST")
        assert facts["instance"] == instance


def check_filled_anew(channel: grpc.Channel) -> None:
    """Another session works, and knows no digest of before."""
    caller = SessionCaller(channel)
    caller.open()
    assert caller.missing(DIGEST) == [DIGEST]
    handle, kept = caller.put(DATA), new_handle()
    caller.execute(of_handle(handle, COUNT, keep=kept))
    assert caller.download(part(kept, len(DATA))) == EXPECTED


def test_a_server_killed_in_the_middle_of_any_method_is_lost_with_its_sessions() -> None:
    """The server is stopped before the methods, so it has not answered when it is killed."""
    listen = wire.free_address()
    with running_server(listen=listen) as server, wire.bare_channel(server.target) as channel:
        instance = wire.server_info(channel).server.instance
        callers = {name: filled(channel) for name in METHODS}
        server.process.send_signal(signal.SIGSTOP)
        os.waitpid(server.process.pid, os.WUNTRACED)  # until all its threads have stopped
        calls = {name: METHODS[name](*caller) for name, caller in callers.items()}
        server.process.kill()
        server.process.wait()
        ended = {name: error_of(call).code() for name, call in calls.items()}
        assert ended == dict.fromkeys(METHODS, grpc.StatusCode.UNAVAILABLE)
    with running_server(listen=listen), wire.bare_channel(server.target) as channel:
        for caller, handle in callers.values():
            check_lost(SessionCaller(channel, caller.session), handle, instance)
        check_filled_anew(channel)


class Unfinished:
    """Methods of one session that are under way, each waiting for what never comes."""

    def __init__(self, caller: SessionCaller, handle: bytes) -> None:
        never, self._ended = new_handle(), threading.Event()
        self.calls = {"Upload": caller.begin_upload(self._half(never))}
        wire.until(lambda: is_filling(caller, never), "the upload has begun")
        waiting = {"Execute": _execute, "ExecuteProgram": _program, "Download": _download}
        self.calls |= {name: begin(caller, never) for name, begin in waiting.items()}

    def _half(self, handle: bytes) -> Iterator[sessions.UploadRequest]:
        frames = upload_frames({handle: DATA}, chunk=len(DATA) // 4)
        for _ in range(3):
            yield next(frames)
        self._ended.wait(wire.PATIENCE)

    def end(self) -> None:
        self._ended.set()


def is_filling(caller: SessionCaller, handle: bytes) -> bool:
    """Whether something fills a handle: from then on the server knows that it is not so long."""
    request = of_handle(handle, COUNT + 1)
    error = error_of(caller.begin("Execute", request, pb.ExecuteResponse, OPERATORS))
    return wire.details_of(error)[0] == "TENSOR_LAYOUT"


@pytest.mark.long
def test_a_lost_device_ends_every_method_under_way_and_the_sessions_are_lost() -> None:
    fault = {"NPUCALL_SIM_FAULTS": "aclnnL1LossBackward:1:sticky:507018"}
    listen = wire.free_address()
    with running_npu_server("--device-timeout=2", listen=listen, **fault) as server:
        with wire.bare_channel(server.target) as channel:
            caller, handle = filled(channel)
            instance = wire.server_info(channel).server.instance
            unfinished = Unfinished(caller, handle)
            breaking = caller.begin("Execute", l1(), pb.ExecuteResponse, OPERATORS)
            assert wire.details_of(error_of(breaking))[0] == "DEVICE_ERROR"
            ended = {name: error_of(call).code() for name, call in unfinished.calls.items()}
            unfinished.end()
            assert set(ended.values()) == {grpc.StatusCode.UNAVAILABLE}, ended
        assert server.process.wait(wire.PATIENCE) == 70
        session = caller.session
    with running_npu_server(listen=listen), wire.bare_channel(server.target) as channel:
        check_lost(SessionCaller(channel, session), handle, instance)
        check_filled_anew(channel)


def l1() -> pb.ExecuteRequest:
    names = ("grad_output", "self", "target")
    one = struct.pack("<f", 1.0)
    request = wire.request_of(
        "aclnnL1LossBackward", [wire.tensor(name, 1) for name in names], *[one] * 3
    )
    return pb.ExecuteRequest.FromString(request)
