"""A server that ends while a method of a session is under way: what callers are told, and do."""

from __future__ import annotations

import hashlib
import os
import secrets
import signal
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from tests.npu import running_npu_server
from tests.server.sessions.raw import SESSIONS, RawSessions, entry, frames

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import session_service_pb2 as sessions
from npucall.v1 import tensor_pb2
from npucall_client.testing import running_server

from . import wire
from .contract import KL, Caller, kl, request

Begin = Callable[[RawSessions, bytes], Any]

OPERATORS = f"/{wire.SERVICE}"
COUNT = 1 << 18
DATA = struct.pack("<f", 2.0) * COUNT
EXPECTED = struct.pack("<f", -4.0) * COUNT
DIGEST = hashlib.sha256(DATA).digest()


def new_handle() -> bytes:
    """An id as callers choose them."""
    return secrets.token_bytes(16)


def part(handle: bytes, count: int = COUNT) -> tensor_pb2.HandlePart:
    return tensor_pb2.HandlePart(id=handle, length=4 * count)


def product(handle: bytes, count: int = COUNT, keep: bytes = b"") -> pb.ExecuteRequest:
    """A call that answers ``-grad_output * target``, both of which are in this handle."""
    place = tensor_pb2.Storage(handle=part(handle, count))
    kept = pb.OutputPlace(output="out", keep=keep or new_handle())
    return request(KL, kl(count), [place] * 2, [kept])


# --- Methods that have begun ----------------------------------------------------------------------


class Stream:
    """The end of a method that answers a stream."""

    def __init__(self, answers: Any) -> None:
        self._answers = answers

    def exception(self, _: float) -> grpc.RpcError | None:
        try:
            for _answer in self._answers:
                pass
        except grpc.RpcError as error:
            return error
        return None


def begun(caller: RawSessions, path: str, message: Any) -> Any:
    method: Any = caller.channel.unary_unary(path)
    data = message.SerializeToString()
    return method.future(data, metadata=caller.metadata, timeout=wire.PATIENCE)


def execute(caller: RawSessions, handle: bytes, count: int = COUNT) -> Any:
    return begun(caller, f"{OPERATORS}/Execute", product(handle, count))


def program(caller: RawSessions, handle: bytes) -> Any:
    steps = [product(handle) for _ in range(5)]
    return begun(caller, f"{OPERATORS}/ExecuteProgram", pb.ExecuteProgramRequest(steps=steps))


def stream(caller: RawSessions, handle: bytes) -> Any:
    frame = pb.ExecuteStreamRequest(begin=pb.Begin(request=product(handle)))
    method = Caller(caller.channel).stub.ExecuteStream
    return Stream(method(iter([frame]), metadata=caller.metadata, timeout=wire.PATIENCE))


def download(caller: RawSessions, handle: bytes) -> Any:
    message = sessions.DownloadRequest(part=part(handle)).SerializeToString()
    method = caller.channel.unary_stream(f"{SESSIONS}/Download")
    return Stream(method(message, metadata=caller.metadata, timeout=wire.PATIENCE))


def upload(caller: RawSessions, handle: bytes, ended: threading.Event | None = None) -> Any:
    """Of DATA; ``ended``: for which its last bytes wait."""

    def messages() -> Iterator[bytes]:
        *most, chunk, end = frames(entry(handle, DATA))
        yield from (each.SerializeToString() for each in most)
        if ended:
            ended.wait(wire.PATIENCE)
        yield from (each.SerializeToString() for each in (chunk, end))

    method = caller.channel.stream_unary(f"{SESSIONS}/Upload")
    return method.future(messages(), metadata=caller.metadata, timeout=wire.PATIENCE)


def asked(method: str, **fields: Any) -> Begin:
    message = getattr(sessions, f"{method}Request")(**fields)
    return lambda caller, _: begun(caller, f"{SESSIONS}/{method}", message)


WITH_SESSION: dict[str, Begin] = {
    "Upload": lambda caller, _: upload(caller, new_handle()),
    "Execute": execute,
    "ExecuteProgram": program,
    "ExecuteStream": stream,
    "Download": download,
    "Release": lambda caller, handle: asked("Release", handles=[handle])(caller, handle),
    "Renew": asked("Renew"),
    "Close": asked("Close"),
}
METHODS = {
    **WITH_SESSION,
    "OpenSession": asked("OpenSession"),
    "FindMissing": asked("FindMissing", digests=[DIGEST]),
}


def error_of(call: Any) -> Any:
    """What a method ended with; None for OK."""
    return call.exception(wire.PATIENCE)


def filled(channel: grpc.Channel) -> tuple[RawSessions, bytes]:
    """A session, and a handle of it that holds DATA."""
    caller, handle = RawSessions(channel), new_handle()
    caller.open()
    caller.put(handle, DATA, digest=DIGEST)
    return caller, handle


def check_lost(caller: RawSessions, handle: bytes, instance: str) -> None:
    """Whatever names a session of the server before is told so, with the instance that it was."""
    for name, begin in WITH_SESSION.items():
        if name in ("Close", "ExecuteStream"):  # no error; errors in frames
            continue
        reason, _, facts = wire.details_of(error_of(begin(caller, handle)))
        assert (name, reason) == (name, "HANDLE_LOST")
        assert facts["instance"] == instance


def check_filled_anew(channel: grpc.Channel) -> None:
    """Another session works, and knows no digest of before."""
    caller, handle, kept = RawSessions(channel), new_handle(), new_handle()
    caller.open()
    assert caller.missing(DIGEST) == [DIGEST]
    caller.put(handle, DATA)
    Caller(channel).execute(product(handle, keep=kept), *caller.metadata)
    assert caller.download(kept, len(DATA)) == EXPECTED


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
            caller.channel = channel
            check_lost(caller, handle, instance)
        check_filled_anew(channel)


def is_filling(caller: RawSessions, handle: bytes) -> bool:
    """Whether something fills a handle: from then on the server knows that it is not so long."""
    return wire.reason_of(error_of(execute(caller, handle, COUNT + 1))) == "TENSOR_LAYOUT"


@pytest.mark.long
def test_a_lost_device_ends_every_method_under_way_and_the_sessions_are_lost() -> None:
    """Each of them waits for bytes of an upload that never come."""
    fault = {"NPUCALL_SIM_FAULTS": "aclnnL1LossBackward:1:sticky:507018"}
    listen, never, over = wire.free_address(), new_handle(), threading.Event()
    with running_npu_server("--device-timeout=2", listen=listen, **fault) as server:
        with wire.bare_channel(server.target) as channel:
            caller, handle = filled(channel)
            instance = wire.server_info(channel).server.instance
            calls = [upload(caller, never, over)]
            wire.until(lambda: is_filling(caller, never), "the upload has begun")
            calls += [begin(caller, never) for begin in (execute, program, download)]
            breaking = Caller(channel).refused(l1())
            assert breaking.reason == "DEVICE_ERROR"
            ended = {error_of(call).code() for call in calls}
            over.set()
            assert ended == {grpc.StatusCode.UNAVAILABLE}
        assert server.process.wait(wire.PATIENCE) == 70
    with running_npu_server(listen=listen), wire.bare_channel(server.target) as channel:
        caller.channel = channel
        check_lost(caller, handle, instance)
        check_filled_anew(channel)


def l1() -> pb.ExecuteRequest:
    tensors = [wire.tensor(name, 1) for name in ("grad_output", "self", "target")]
    return request("aclnnL1LossBackward", tensors, [struct.pack("<f", 1.0)] * 3)
