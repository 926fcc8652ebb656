"""A server that ends while a method of a session is under way: what callers are told, and do."""

from __future__ import annotations

import hashlib
import os
import signal
import struct
import threading
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.npu import running_npu_server

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import session_service_pb2 as sessions
from npucall_client.testing import running_server

from . import wire
from .session_caller import (
    OPERATORS,
    SessionCaller,
    chain,
    negated,
    new_handle,
    part,
    upload_frames,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Begin = Callable[[SessionCaller, bytes], Any]

COUNT = 1 << 18
DATA = struct.pack("<f", 2.0) * COUNT
EXPECTED = struct.pack("<f", -2.0) * COUNT
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
    request = negated(part(handle, len(DATA)), COUNT, keep=new_handle())
    return caller.begin("Execute", request, pb.ExecuteResponse, OPERATORS)


def _program(caller: SessionCaller, handle: bytes) -> Any:
    request = chain(part(handle, len(DATA)), COUNT, 5, keep=new_handle())
    return caller.begin("ExecuteProgram", request, pb.ExecuteProgramResponse, OPERATORS)


def _stream(caller: SessionCaller, handle: bytes) -> Any:
    request = negated(part(handle, len(DATA)), COUNT, keep=new_handle())
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
    caller.execute(negated(part(handle, len(DATA)), COUNT, keep=kept))
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
    request = negated(part(handle, len(DATA) + 4), COUNT + 1)
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
