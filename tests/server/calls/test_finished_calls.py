"""A call that is over leaves nothing, though nobody collects garbage.

An object of a call in a reference cycle would stay until the next collection, and with it gRPC's
call, which counts against the calls that its connection may have.
"""

import gc
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import pytest
from tests.server.carriers.frames.peer import EXECUTE, PROGRAM, FramePeer, StreamPeer, connected
from tests.server.fakes import PATIENCE, BlockingDevice, until
from tests.server.raw import call_of, channel_to
from tests.server.serving import Served, serving
from tests.server.sessions.raw import A, B, RawSessions, begin, chunk, end, entry

from npucall.operators import DEFAULT_VARIANT
from npucall.products import DEFAULT_SOC
from npucall.v1 import access_service_pb2 as access
from npucall.v1 import operator_service_pb2 as operators
from npucall.v1 import session_service_pb2 as sessions
from npucall.v1 import tensor_pb2
from npucall.wire.rpcs import RPCS, RpcKind
from npucall_server.devices.cpu import CpuDevice

AT_ONCE = 4
"""Calls that are open together; a connection may have 64."""
PACKAGES = "npucall_server.", "grpc._server"
"""The objects of a call are of these."""
LASTING = "_Thread", "Holder", "UsageKey", "UsageLine"
"""What a server keeps of its callers."""


def messages() -> dict[str, list[list[Any]]]:
    """For each method, what some of its callers send; not all of it is right."""
    found = {name: [[rpc.request()]] for name, rpc in RPCS.items() if "Directory" not in rpc.path}
    call = operators.ExecuteRequest(call=call_of(2))
    whole = operators.ExecuteRequest(
        call=call_of(2), storage=[tensor_pb2.Storage(data=bytes(8))] * 3
    )
    part = tensor_pb2.HandlePart(id=A, length=4)
    upload = [begin(entry(B, b"data")[0]), chunk(b"data"), end()]
    found |= {
        "Execute": [[whole], [call]],
        "Plan": [[operators.PlanRequest(call=call_of(2))], [operators.PlanRequest()]],
        "ExecuteProgram": [[operators.ExecuteProgramRequest(steps=[whole])]],
        "PlanProgram": [[operators.PlanProgramRequest(steps=[call])]],
        "ExecuteStream": [list(frames(whole)), [operators.ExecuteStreamRequest(call_id=7)]],
        "Reserve": [[access.ReserveRequest()]],
        "Upload": [upload, upload[:2], upload[1:]],
        "Download": [[sessions.DownloadRequest(part=part)], [sessions.DownloadRequest()]],
    }
    return found


def frames(whole: operators.ExecuteRequest) -> Iterator[operators.ExecuteStreamRequest]:
    """A call, a wrong one, one in chunks, one that is cancelled."""
    frame, begun = operators.ExecuteStreamRequest, operators.Begin
    chunked = begun(request=operators.ExecuteRequest(call=whole.call), chunked=True)
    yield frame(call_id=1, begin=begun(request=whole))
    yield frame(call_id=2, begin=begun(request=operators.ExecuteRequest(call=whole.call)))
    yield frame(call_id=3, begin=chunked)
    for number in range(3):
        yield frame(call_id=3, chunk=operators.Chunk(storage=number, data=bytes(8)))
    yield frame(call_id=3, end=operators.End())
    yield frame(call_id=4, begin=chunked)
    yield frame(call_id=4, cancel=operators.Cancel())


class Callers:
    """Callers of one server. Each method has a connection of its own."""

    def __init__(self, served: Served, channel: Any, name: str) -> None:
        self.served, self.rpc = served, RPCS[name]
        self.client = RawSessions(channel)
        self.client.open()
        self.client.put(A, b"data")

    def start(self, sent: Iterator[bytes]) -> Any:
        call = self.client.channel.stream_stream(self.rpc.path)
        return call(sent, metadata=self.client.metadata, timeout=PATIENCE)

    def finish(self, sent: Sequence[Any]) -> None:
        """Calls at a time whose answers are read."""
        data = [each.SerializeToString() for each in sent]
        for call in [self.start(iter(data)) for _ in range(AT_ONCE)]:
            with suppress(grpc.RpcError):
                list(call)

    def cancel(self, sent: Sequence[Any]) -> None:
        """Calls that are cancelled together, of which more or less has been sent."""
        queues = [SimpleQueue[bytes | None]() for _ in range(AT_ONCE)]
        calls, waits = [], self.rpc.kind in (RpcKind.CHUNKS, RpcKind.STREAM)
        for number, queue in enumerate(queues):
            for each in sent[: number % (len(sent) + (not waits))]:
                queue.put(each.SerializeToString())
            calls.append(self.start(iter(queue.get, None)))
        if waits:
            held = self.served.streams.places
            until(lambda: held.used + sum(each.done() for each in calls) >= AT_ONCE)
        for call in calls:
            call.cancel()
        for queue in queues:
            queue.put(None)


def rest() -> Counter[str]:
    """The objects that there are, by class."""
    found: Counter[str] = Counter()
    for kind, count in Counter(map(type, gc.get_objects())).items():
        name = f"{kind.__module__}.{kind.__qualname__}"
        if name.startswith(PACKAGES) and not name.endswith(LASTING):
            found[name] += count
    return found


def in_frames(served: Served, how: str) -> None:
    """Calls of a connection of frames that are answered, or that are left behind with it."""
    reads = how == "finish"
    with connected(served) as peer:
        for number in range(1, AT_ONCE + 1):
            kind = EXECUTE if number % 3 else PROGRAM
            sent = messages()["ExecuteProgram" if kind == PROGRAM else "Execute"][0][0]
            peer.send(kind, sent.SerializeToString(), number)
        for _ in range(AT_ONCE if reads else 0):
            peer.receive()
    with connected(served) as peer:
        stream = StreamPeer(peer)
        for sent in messages()["ExecuteStream"][0]:
            stream.send_bytes(sent.SerializeToString())
        if reads:
            stream.close()
            stream.answers()
    with FramePeer(str(served.settings.frames_socket)):
        pass


def left(served: Served, name: str, how: str, rounds: int) -> Counter[str]:
    """What is left of so many rounds of calls of a method, however long one waits."""
    ways = messages()[name]
    with channel_to(served.target) as channel:
        callers = Callers(served, channel, name)
        act = getattr(callers, how)
        for sent in ways:
            act(sent)
        time.sleep(0.1)
        before = rest()
        for number in range(rounds):
            act(ways[number % len(ways)])
            if name == "OpenSession":
                served.sessions.end_all()
        found = grown(served, before)
        callers.client.close_all()
        return found


def grown(served: Served, before: Counter[str]) -> Counter[str]:
    """What there is more than before, however long one waits."""
    found: Counter[str] = Counter()
    for _ in range(6000):  # five minutes: peers are noticed late beside load
        served.core.usage.lines()  # it counts the records that it has
        found = rest() - before
        if not found:
            break
        time.sleep(0.05)
    return found


def found_after(how: str, rounds: int, served: Served) -> dict[str, Counter[str]]:
    """What is left of the calls of each method, and of those by frames, whose connection ends."""
    found = {name: left(served, name, how, rounds) for name in messages()}
    in_frames(served, how)
    time.sleep(0.1)
    before = rest()
    for _ in range(rounds):
        in_frames(served, how)
    found["frames"] = grown(served, before)
    served.sessions.end_all()  # those whose caller had cancelled before they were open
    return found


@pytest.mark.alone
@pytest.mark.parametrize(
    "rounds", [pytest.param(2, marks=pytest.mark.more), pytest.param(255, marks=pytest.mark.long)]
)
def test_a_call_that_is_over_leaves_nothing(rounds: int, tmp_path: Path) -> None:
    """Two rounds are 8 calls of each method, 255 are 1,020."""
    with serving(
        CpuDevice(DEFAULT_SOC, DEFAULT_VARIANT, 1), max_streams=64, memory_limit=1 << 30,
        frames_socket=tmp_path / "f",
    ) as served:  # fmt: skip
        gc.collect()
        gc.disable()
        for how in ("finish", "cancel"):
            found = found_after(how, rounds, served)
            assert {name: dict(each) for name, each in found.items() if each} == {}, how


@pytest.mark.alone
def test_a_call_that_waited_for_its_turn_leaves_nothing(tmp_path: Path) -> None:
    """Before: it kept itself, and memory of its connection that was then never given back."""
    whole = messages()["Execute"][0][0].SerializeToString()
    device = BlockingDevice()
    device.result = bytes(8)

    def calls(served: Served) -> None:
        with connected(served) as one, connected(served) as other:
            stream = StreamPeer(other)
            for number in range(1, 9):
                one.send(EXECUTE, whole, number)
                begun = operators.Begin(request=operators.ExecuteRequest.FromString(whole))
                frame = operators.ExecuteStreamRequest(call_id=number, begin=begun)
                stream.send_bytes(frame.SerializeToString())
            until(lambda: served.executor.turns.waiting == 15)
            device.let_go(16)
            for _ in range(8):
                one.receive()
            stream.close()
            stream.answers()

    with serving(device, max_streams=64, frames_socket=tmp_path / "f") as served:
        calls(served)
        gc.collect()
        gc.disable()
        before = rest()
        calls(served)
        found = grown(served, before)
    assert found == Counter()
