"""ExecuteStream against peers that break its rules, cancel, or go away: nothing stays behind."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.server.fakes import BlockingDevice, device_that_answers, until, waiting
from tests.server.raw import MANY, RawStream, message_of, stream
from tests.server.serving import Served, serving

from npucall.errors import MessageError
from npucall.exchange import PASSED_OVER, TRANSITIONS, Event, State
from npucall.v1 import operator_service_pb2 as pb
from npucall_server.carriers.multiplex import stream as stream_module
from npucall_server.carriers.multiplex.open_calls import UsedIds

Act = Callable[[RawStream], None]

MIB = 2**20


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    with serving(max_message_bytes="32MiB") as served:
        yield served


def large_chunk(peer: RawStream) -> None:
    peer.begin_chunked(1, elements=8 * MIB)
    peer.chunk(1, 0, 0, bytes(16 * MIB + 1))


def too_many_frames(peer: RawStream) -> None:
    cancel = pb.ExecuteStreamRequest(call_id=1, cancel=pb.Cancel())
    peer.send_bytes(message_of([cancel] * 65))


def frames_within_frames(peer: RawStream) -> None:
    cancel = pb.ExecuteStreamRequest(call_id=1, cancel=pb.Cancel())
    inner = pb.ExecuteStreamRequest(call_id=1, cancel=pb.Cancel(), more=[cancel])
    peer.send_bytes(message_of([cancel, inner]))


MISUSES: dict[str, Act] = {
    "a frame of nothing": lambda peer: peer.send_bytes(b""),
    "a frame that is no message": lambda peer: peer.send_bytes(b"\x08"),
    "a chunk of more than 16 MiB": large_chunk,
    "a message of one frame too many": too_many_frames,
    "frames within frames": frames_within_frames,
}


def test_a_misuse_ends_the_stream(shared: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that do not fit: ``test_exchange.py`` and the contract."""
    monkeypatch.setattr(stream_module, "_BREAK_SECONDS", 0.01)  # nobody goes away here
    ends = {}
    for name, act in MISUSES.items():
        with stream(shared) as peer:
            act(peer)
            ends[name] = peer.end_of_stream()
    assert ends == dict.fromkeys(MISUSES, "MESSAGE_MALFORMED")


def test_a_misuse_ends_the_calls_beside_it() -> None:
    with serving(BlockingDevice(checks=True)) as served, stream(served) as peer:
        peer.begin(1)
        peer.begin(2)
        peer.begin_chunked(3)
        until(lambda: served.executor.calls_in_flight == 3, "all are taken in")
        peer.send_bytes(b"")
        assert peer.end_of_stream() == "MESSAGE_MALFORMED"
        until(served.is_at_rest, "all have ended")
    reasons = sorted(line["reason"] for line in served.events("call"))
    assert reasons == ["CANCELLED", "CANCELLED", "CANCELLED", "MESSAGE_MALFORMED"]


def test_ids_that_skip_about_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npucall_server.carriers.multiplex.open_calls.UsedIds", partial(UsedIds, 3))
    with serving() as served, stream(served) as peer:
        for call_id in (30, 10, 20, 21, 22, 11):
            peer.begin(call_id)
            assert peer.ids(1) == [call_id]
        peer.begin(0)
        assert peer.end_of_stream() == "MESSAGE_MALFORMED"


def test_gaps_of_any_ids_take_16_bytes_each() -> None:
    ids = UsedIds()
    for call_id in range(0, 65_536 * 2, 2):
        ids.add(2**63 + call_id)
    with pytest.raises(MessageError, match="consecutive numbers"):
        ids.add(0)
    kept = sum(each.itemsize * len(each) for each in (ids._firsts, ids._lasts))
    assert kept == 65_536 * 16


@pytest.mark.parametrize("answered", [False, True], ids=["while it runs", "after its answer"])
def test_bytes_for_a_call_that_has_all_of_them_are_passed_over(answered: bool) -> None:
    """Whenever they come: neither this call nor one beside it is lost."""
    device = BlockingDevice()
    with serving(device) as served, stream(served) as peer:
        peer.begin_chunked(1)
        peer.chunks(1)
        peer.begin(2)
        until(lambda: device.running == 1 and waiting(served.executor) == 1, "one runs, one waits")
        if answered:
            device.let_go(2)
            assert set(peer.ids(2)) == {1, 2}
        for call_id in (1, 2):
            peer.chunk(call_id, 0, 0, b"x")
            peer.end(call_id)
        peer.begin(3)
        until(lambda: served.executor.calls_admitted == 3, "the late frames were read")
        device.let_go(3)
        left = {3} if answered else {1, 2, 3}
        assert set(peer.ids(len(left))) == left
        peer.close()
        assert peer.end_of_stream() == "OK"


# --- Cancels and peers that go away ---------------------------------------------------------------


def test_a_cancel_ends_a_call_that_runs() -> None:
    with serving(BlockingDevice(checks=True)) as served, stream(served) as peer:
        peer.begin(1)
        until(lambda: served.device.running == 1, "it runs")
        peer.cancel(1)
        assert peer.reason(1) == "CANCELLED"
        until(served.is_idle, "its room is free")


def test_a_peer_that_goes_away_in_the_middle_of_an_answer_leaves_nothing_behind() -> None:
    with serving(device_that_answers(64 * MIB)) as served:
        with stream(served) as peer:
            peer.begin(1)
            peer.begin(2)
            peer.receive()
            assert served.executor.calls_in_flight > 0
        until(served.is_at_rest, "nothing is left")


STORAGES, SIZE = 3, 8
SENT = ("begin", "begin_chunked", "chunk", "end", "cancel")


@dataclass
class Model:
    """What a caller knows of its calls: the table, without the server's answers."""

    states: dict[int, State] = field(default_factory=dict)
    chunks: dict[int, int] = field(default_factory=dict)
    breaks: bool = False
    """A frame that the table does not have: the stream ends."""

    def take(self, call_id: int, kind: str) -> None:
        state = self.states.get(call_id, State.NEW)
        event = Event.BEGIN_CHUNKED if kind == "begin_chunked" else Event(kind)
        if event in PASSED_OVER[state]:
            return
        self.breaks = event not in TRANSITIONS[state] or (
            event is Event.END and self.chunks.get(call_id, 0) < STORAGES
        )
        if event is Event.CHUNK:
            self.chunks[call_id] = self.chunks.get(call_id, 0) + 1
            self.breaks = self.breaks or self.chunks[call_id] > STORAGES
        cancelled = event is Event.CANCEL and state is State.RECEIVING
        self.states[call_id] = State.COMPLETE if cancelled else TRANSITIONS[state].get(event, state)

    def send(self, peer: RawStream, call_id: int, kind: str) -> None:
        """A frame; of chunks the next one that fits."""
        if kind == "chunk":
            peer.chunk(call_id, min(self.chunks.get(call_id, 0), STORAGES - 1), 0, bytes(SIZE))
        else:
            getattr(peer, kind)(call_id)
        self.take(call_id, kind)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from(SENT), st.booleans()), max_size=14),
    st.sampled_from([(), MANY]),
)
def test_a_stream_ends_where_the_table_says_and_answers_every_other_call_once(
    shared: Served, frames: list[tuple[int, str, bool]], metadata: tuple[tuple[str, str], ...]
) -> None:
    """However the frames are put into messages: True is the last one of its message."""
    model = Model()
    with stream(shared, metadata=metadata) as peer:
        while frames and not model.breaks:
            with peer.one_message():
                is_last = False
                while frames and not model.breaks and not is_last:
                    call_id, kind, is_last = frames.pop(0)
                    model.send(peer, call_id, kind)
        for call_id, state in model.states.items():
            if state is State.RECEIVING and not model.breaks:
                peer.cancel(call_id)
        peer.close()
        answers, reason = peer.answers()
    begun = set(model.states) - {i for i, s in model.states.items() if s is State.NEW}
    assert {len(each) for each in answers.values()} <= {1}
    assert peer.most_frames <= (64 if metadata else 1)
    assert set(answers) <= begun
    assert reason == ("MESSAGE_MALFORMED" if model.breaks else "OK")
    assert model.breaks or set(answers) == begun
