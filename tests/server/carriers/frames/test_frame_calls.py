"""Calls in frames: each has the answer that it has over gRPC."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.server.fakes import (
    PATIENCE,
    BlockingDevice,
    FakeDevice,
    device_that_answers,
    until,
    waiting,
)
from tests.server.raw import call_of, channel_to, info_of

from npucall.errors import BusyError
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall.wire.status import TRAILER
from npucall_server.carriers.multiplex.stream import STREAM_WINDOW as WINDOW

from .peer import (
    EXECUTE,
    PROGRAM,
    RESPONSE,
    FramePeer,
    QuickDevice,
    connected,
    framed,
    packed,
    request,
)

if TYPE_CHECKING:
    from tests.server.serving import Served

KIB, MIB = 2**10, 2**20
SERVICE = "/npucall.v1.OperatorService"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with framed(tmp_path_factory.mktemp("f"), QuickDevice()) as served:
        yield served


def over_grpc(served: Served, method: str, message: bytes, name: str = "mine") -> Any:
    """The answer, or the status of the error."""
    with channel_to(served.target) as channel:
        try:
            return channel.unary_unary(f"{SERVICE}/{method}")(
                message, metadata=(("npucall-request-id", name),)
            )
        except grpc.RpcError as error:
            found: Any = error
            return dict(found.trailing_metadata())[TRAILER]


def test_the_server_says_first_who_it_is_and_where(shared: Served) -> None:
    info = pb.GetServerInfoResponse.FromString(over_grpc(shared, "GetServerInfo", b""))
    with FramePeer(info.frames_socket) as peer:
        hello = peer.hello()
    assert hello.server == info.server.instance
    budget = shared.parts.methods.budget
    assert (hello.max_message_bytes, hello.window) == (budget.frame_bytes, WINDOW)
    assert hello.max_message_bytes >= info.limits.max_message_bytes


def test_a_call_and_a_program_have_the_answers_that_grpc_gives(shared: Served) -> None:
    program = pb.ExecuteProgramRequest(steps=[pb.ExecuteRequest.FromString(request())] * 2)
    sent = {
        "Execute": (EXECUTE, request(), pb.ExecuteResponse),
        "ExecuteProgram": (PROGRAM, program.SerializeToString(), pb.ExecuteProgramResponse),
    }
    with connected(shared) as peer:
        for number, (method, (kind, message, answer)) in enumerate(sent.items(), 1):
            peer.send(kind, message, number)
            frame = peer.receive()
            assert (frame.kind, frame.call) == (RESPONSE, number)
            answers: list[Any] = [
                answer.FromString(each)  # type: ignore[attr-defined]
                for each in (frame.message, over_grpc(shared, method, message))
            ]
            for each in answers:
                assert each.timings.run_ns
                each.ClearField("timings")
            assert answers[0] == answers[1]


WRONG = {
    "no message": b"\xff",
    "nothing": b"",
    "no operator": pb.ExecuteRequest().SerializeToString(),
    "an unknown operator": request(operator="aclnnUnknown"),
    "no storages": pb.ExecuteRequest(call=call_of(2)).SerializeToString(),
    "another length": pb.ExecuteRequest(
        call=call_of(2), storage=[tensor_pb2.Storage(data=b"1234")] * 3
    ).SerializeToString(),
    "handles of no session": pb.ExecuteRequest(
        call=call_of(2),
        storage=[tensor_pb2.Storage(data=bytes(8))] * 3,
        output_places=[pb.OutputPlace(output="grad_input", keep=bytes(16))],
    ).SerializeToString(),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("kind", [EXECUTE, PROGRAM])
def test_an_error_is_the_same_in_every_byte_and_the_connection_goes_on(
    shared: Served, what: str, kind: int
) -> None:
    method = {EXECUTE: "Execute", PROGRAM: "ExecuteProgram"}[kind]
    with connected(shared) as peer:
        peer.send(kind, WRONG[what], 1, request_id="mine")
        frame = peer.receive()
        assert frame.message == over_grpc(shared, method, WRONG[what])
        assert frame.reason
        peer.execute(1)
        assert peer.receive().response


def test_what_stands_beside_a_message_reaches_the_call(shared: Served) -> None:
    with connected(shared) as peer:
        peer.execute(1, reservation="no key", request_id="mine")
        info = info_of(peer.receive().message)
        assert (info.reason, info.metadata["request_id"]) == ("RESERVED", "mine")
        peer.execute(2, request_id="x" * 200, traceparent="00-1-2-03")
        assert peer.receive().response
    until(lambda: any(line.get("request_id") == "x" * 128 for line in shared.lines()), "its line")
    (line,) = [each for each in shared.lines() if each.get("request_id") == "x" * 128]
    assert (line["method"], line["carrier"], line["traceparent"]) == (
        "Execute",
        "frames",
        "00-1-2-03",
    )


@pytest.mark.parametrize("elements", [1, 1300, 1400, 400_000])
def test_messages_of_all_sizes_reach_the_device_as_they_were_sent(
    tmp_path: Path, elements: int
) -> None:
    seen: list[bytes] = []

    class Device(FakeDevice):
        def run(self, steps: Any, turn: Any, pieces: Any = None) -> Any:
            seen.extend(bytes(each) for each in steps[0].storages.values())
            return super().run(steps, turn, pieces)

    data = [bytes([index, 0, index, 255]) * elements for index in range(3)]
    storage = [tensor_pb2.Storage(data=each) for each in data]
    message = pb.ExecuteRequest(call=call_of(elements), storage=storage).SerializeToString()
    with framed(tmp_path, Device()) as served, connected(served) as peer:
        for number in range(1, 4):
            peer.send(EXECUTE, message, number)
            assert peer.receive().call == number
    assert seen == data * 3


def test_a_large_answer_comes_whole_however_slowly_it_is_read(tmp_path: Path) -> None:
    with (
        framed(tmp_path, device_that_answers(8 * MIB)) as served,
        FramePeer(str(served.settings.frames_socket)) as peer,
    ):
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.enter()
        peer.execute()
        (storage,) = peer.receive().response.storage
        assert storage.data == served.device.result


def test_many_calls_at_once_are_answered_once_each(shared: Served) -> None:
    with connected(shared) as peer:
        for call in range(1, 301):
            peer.execute(call)
        assert [peer.receive().call for _ in range(300)] == list(range(1, 301))


def test_no_more_calls_are_read_than_the_window(tmp_path: Path) -> None:
    device = BlockingDevice()
    with framed(tmp_path, device, queue_length=100) as served, connected(served) as peer:
        for call in range(1, WINDOW + 4):
            peer.execute(call)
        until(lambda: waiting(served.executor) == WINDOW - 1, "the window is full")
        device.let_all_go()
        calls = {peer.receive().call for _ in range(1, WINDOW + 4)}
        assert calls == set(range(1, WINDOW + 4))


def test_a_timeout_is_the_deadline(tmp_path: Path) -> None:
    device = BlockingDevice(checks=True)
    with framed(tmp_path, device) as served, connected(served) as peer:
        peer.execute(1, timeout=60_000)
        until(lambda: device.running, "it runs")
        peer.execute(2, timeout=1)
        assert peer.reason() == "DEADLINE"
        device.let_all_go()
        assert peer.receive().response


def test_a_cancel_ends_the_call_that_it_names(tmp_path: Path) -> None:
    device = BlockingDevice(checks=True)
    with framed(tmp_path, device) as served, connected(served) as peer:
        for call in (1, 2):
            peer.execute(call)
        until(lambda: waiting(served.executor) == 1, "one waits")
        for call in (9, 2):
            peer.send(6, b"passed over", call)
        frame = peer.receive()
        assert (frame.call, frame.reason) == (2, "CANCELLED")
        device.let_all_go()
        assert peer.receive().call == 1


def test_the_calls_of_a_peer_that_has_gone_are_not_run(tmp_path: Path) -> None:
    device = BlockingDevice(checks=True)
    with framed(tmp_path, device) as served:
        with connected(served) as peer:
            for call in (1, 2, 3):
                peer.execute(call)
            until(lambda: waiting(served.executor) == 2, "they wait")
        until(served.is_idle, "all are gone")
        assert len(device.entered) == 1


def test_a_server_that_drains_finishes_what_it_has(tmp_path: Path) -> None:
    device = BlockingDevice()
    with framed(tmp_path, device) as served, connected(served) as peer:
        peer.execute(1)
        until(lambda: device.running, "it runs")
        served.drain()
        peer.execute(2)
        assert peer.reason() == "DRAINING"
        device.let_all_go()
        assert peer.receive().call == 1
        served.server.drain()
        assert peer.is_closed()


def test_a_message_without_room_is_passed_over(tmp_path: Path) -> None:
    with framed(tmp_path) as served, connected(served) as peer:
        room = served.parts.methods.services.call_room
        names = [f"somebody {number}" for number in range(room.limit)]
        served.core.peers.finished.update(dict.fromkeys(names, 0))
        held = [room.hold(name, 1) for name in names]
        peer.execute(1, elements=10_000)
        assert peer.reason() == BusyError.reason
        peer.execute(2)  # which needs none
        assert peer.receive().response
        for each in held:
            each.give_back()
        peer.execute(3, elements=10_000)
        assert peer.receive().response


def test_a_call_that_comes_while_a_turn_is_taken_waits_in_another_thread(tmp_path: Path) -> None:
    device: Any = BlockingDevice()
    device.runs_in_calling_thread = True
    with framed(tmp_path, device) as served, connected(served) as peer, connected(served) as other:
        peer.execute(1)  # quick: in its own thread
        until(lambda: device.running, "it runs")
        other.execute(1)
        until(lambda: waiting(served.executor) == 1, "it waits")
        device.let_all_go()
        assert peer.receive().response
        assert other.receive().response
    assert device.entered[0] == "npucall-frames"
    assert device.entered[1] != "npucall-frames"
    assert threading.current_thread().name not in device.entered


def test_those_who_stop_within_a_frame_or_do_not_read_stop_nobody_else(shared: Served) -> None:
    whole, large = packed(EXECUTE, request(), 1), request(MIB)
    with ExitStack() as opened:
        peers = [opened.enter_context(connected(shared)) for _ in range(9)]
        for peer, sent in zip(peers, (1, 15, 16, 17, len(whole) - 1), strict=False):
            peer.socket.sendall(whole[:sent])
        for peer in peers[5:8]:
            peer.socket.sendall(packed(EXECUTE, large, 1))  # whose answer nobody reads yet
        for _ in range(50):
            peers[8].execute(2)
            assert peers[8].receive().response
        for peer, sent in zip(peers, (1, 15, 16, 17, len(whole) - 1), strict=False):
            peer.socket.sendall(whole[sent:])
        assert all(peer.receive().response for peer in peers[:8])


@pytest.mark.parametrize("size", [10, MIB])
def test_a_system_without_epoll_has_a_thread_for_each_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.delattr(select, "epoll")
    with framed(tmp_path) as served, connected(served) as peer, connected(served) as other:
        for each in (peer, other, peer):
            each.execute(1, elements=size)
            assert each.receive().response


class WhereDevice(QuickDevice):
    """Remembers which thread ran each call; runs none before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[str] = []
        self.may_run = threading.Event()

    def run(self, steps: Any, turn: Any, pieces: Any = None) -> Any:
        self.threads.append(threading.current_thread().name)
        self.may_run.wait(PATIENCE)
        return super().run(steps, turn, pieces)


@pytest.mark.parametrize(
    ("sent", "is_read_by_it"),
    [
        ([20_000], True),
        ([MIB + 1], False),  # long
        ([20_000, 20_000], False),  # the second one came meanwhile
    ],
)
def test_a_call_runs_in_the_thread_that_has_read_it_unless_that_has_more_to_do(
    tmp_path: Path, sent: list[int], is_read_by_it: bool
) -> None:
    device = WhereDevice()
    with framed(tmp_path, device, memory_limit=2**30) as served, connected(served) as peer:
        frames = [packed(EXECUTE, request(size), call) for call, size in enumerate(sent, 1)]
        threading.Thread(target=peer.socket.sendall, args=(b"".join(frames),)).start()
        until(lambda: device.threads, "the first one runs")
        device.may_run.set()
        assert {peer.receive().call for _ in sent} == set(range(1, len(sent) + 1))
    assert (device.threads[0] == "npucall-frames") is is_read_by_it


def test_a_peer_that_goes_while_its_call_runs_in_the_thread_that_reads_is_noticed(
    tmp_path: Path,
) -> None:
    device = WhereDevice()
    with framed(tmp_path, device) as served:
        with connected(served) as peer:
            peer.execute(elements=20_000)
            until(lambda: device.threads, "it runs")
        (connection,) = served.parts.methods.frames._connections
        served.look()
        assert not connection.is_active()
        device.may_run.set()
        until(served.is_idle, "nothing is left")
