"""ExecuteStream with several frames a message: the same answers, the same faults, the same room."""

import threading

from tests.server.fakes import PATIENCE, BlockingDevice, FakeDevice, until
from tests.server.raw import MANY, stream
from tests.server.serving import Served, serving

from npucall_server.devices.base import DeviceTurn

MIB = 2**20


def test_answers_that_wait_while_the_stream_writes_go_in_one_message() -> None:
    """The first answer is larger than what gRPC and the socket take without a reader."""
    first = threading.Event()
    device = FakeDevice()

    def run(_: DeviceTurn) -> None:
        device.result = b"result" if first.is_set() else bytes(64 * MIB)
        first.set()

    device._run = run
    with serving(device) as served, stream(served, metadata=MANY) as peer:
        with peer.one_message():
            for call_id in range(1, 9):
                peer.begin(call_id)
        until(lambda: len(answered(served)) == 7, "all others have an answer")
        while peer.receive().WhichOneof("frame") != "end":
            pass
        assert sorted(peer.ids(7)) == list(range(2, 9))
        assert peer.most_frames >= 7


def answered(served: Served) -> list[int]:
    streams = tuple(served.streams._streams)
    return [call.id for each in streams for call in each._calls.answered]


def test_a_call_that_waits_for_one_behind_it_keeps_nobody_waiting() -> None:
    runs, first = threading.Semaphore(0), threading.Event()

    def run(turn: DeviceTurn) -> None:
        with turn():
            if not first.is_set():
                first.set()
                for _ in range(7):
                    assert runs.acquire(timeout=PATIENCE)
            else:
                runs.release()

    device = FakeDevice(run, lanes=2)
    with serving(device) as served, stream(served, metadata=MANY) as peer:
        with peer.one_message():
            for call_id in range(1, 9):
                peer.begin(call_id)
        assert sorted(peer.ids(8)) == list(range(1, 9))


def test_each_call_of_a_message_has_its_line_and_its_bytes() -> None:
    with serving() as served, stream(served, metadata=MANY) as peer:
        with peer.one_message():
            peer.begin(1, elements=2, request_id="first")
            peer.begin(2, elements=1000, request_id="second")
        assert set(peer.ids(2)) == {1, 2}
    first, second = sorted(served.events("call"), key=lambda line: str(line["request_id"]))
    assert (first["request_id"], second["request_id"]) == ("first", "second")
    assert second["request_bytes"] - first["request_bytes"] > 3 * 4 * 998
    assert first["response_bytes"] == second["response_bytes"]
    # Where both are in one message, the second one has a tag and a length before it.
    assert 0 <= peer.received_bytes - 2 * first["response_bytes"] <= 3


def test_frames_before_one_that_breaks_the_table_are_taken() -> None:
    """The stream ends, and nothing of them is left."""
    with serving() as served, stream(served, metadata=MANY) as peer:
        with peer.one_message():
            for call_id in (1, 1, 2):
                peer.begin(call_id)
        answers, reason = peer.answers()
        assert reason == "MESSAGE_MALFORMED"
        assert set(answers) <= {1}
    methods = [line["method"] for line in served.events("call")]
    assert methods.count("ExecuteStream") == 2


def test_a_cancel_in_the_message_of_its_call_ends_it_and_no_other() -> None:
    device = BlockingDevice(checks=True)
    with serving(device) as served, stream(served, metadata=MANY) as peer:
        with peer.one_message():
            for call_id in range(1, 5):
                peer.begin(call_id)
            peer.cancel(2)
            peer.cancel(3)
        assert peer.reasons(2) == {2: "CANCELLED", 3: "CANCELLED"}
        device.let_go(2)
        assert sorted(peer.ids(2)) == [1, 4]


def test_a_peer_that_goes_away_leaves_nothing_of_its_message_behind() -> None:
    with serving(BlockingDevice(checks=True)) as served:
        with stream(served, metadata=MANY) as peer:
            with peer.one_message():
                for call_id in range(1, 9):
                    peer.begin(call_id)
                peer.begin_chunked(9)
            until(lambda: served.executor.calls_in_flight == 9, "all are taken in")
        until(served.is_at_rest, "nothing is left")
    assert [line["reason"] for line in served.events("call")] == ["CANCELLED"] * 9
