"""The service of a directory: what those who announce and those who watch are answered."""

import gc
import io
import urllib.request
from collections.abc import Iterator
from itertools import product
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.more import only
from tests.rows import each
from tests.server.calls.test_finished_calls import AT_ONCE, rest
from tests.server.fakes import PATIENCE, until

from npucall.errors import MessageError, QueueFullError
from npucall.v1 import directory_service_pb2 as pb
from npucall.v1 import directory_service_pb2_grpc as stubs
from npucall_server.directory import app, feed, service
from npucall_server.directory.feed import Feed
from npucall_server.directory.messages import read_beat
from npucall_server.directory.table import MemberTable
from npucall_server.telemetry.log import Log

from .directories import (
    DRAINING,
    GONE,
    SERVING,
    SUSPECT,
    Announcing,
    RunningDirectory,
    member,
    refusal,
    running,
)


@pytest.fixture(scope="module")
def directory() -> Iterator[RunningDirectory]:
    """Whose time never passes."""
    with running() as started:
        yield started


def test_who_watches_is_told_the_whole_table_first(directory: RunningDirectory) -> None:
    directory.announce(member("first.lab:1"))
    directory.announce(member("second.lab:1"))
    watching = directory.watch()
    (first, *_) = watching.messages
    assert {"first.lab:1", "second.lab:1"} <= {each.address for each in first.changed}
    assert (first.version, first.epoch) == (1, directory.directory.feed.epoch)
    assert (
        first.epoch != Feed(MemberTable(0.0), Log(stream=io.StringIO())).epoch
    )  # of another start


def test_who_watches_is_told_what_changes(directory: RunningDirectory) -> None:
    watching = directory.watch()
    announcing = directory.announce(member("change.lab:1"))
    watching.until_state("change.lab:1", SERVING)
    announcing.beat(member("change.lab:1", state=DRAINING))
    watching.until_state("change.lab:1", DRAINING)
    announcing.beat(member("change.lab:1", state=GONE))
    watching.until_state("change.lab:1", None)
    assert [each.version for each in watching.messages] == [*range(1, len(watching.messages) + 1)]


def all_said() -> pb.Member:
    said = member(
        "all.lab:7",
        product="Ascend910B1",
        host="all",
        catalogue=2**63 + 1,
        labels={"rack": "7", "lab/driver": "8 é"},
        version="1.2.3",
        memory_limit=2**40,
        shared_memory_socket="/run/x",
        load=pb.MemberLoad(running=1, waiting=2, lanes=3, bytes_in_flight=4),
    )
    said.load.reservation.ends_seconds = 5.5
    said.server.device = "cann:0"
    return said


def said_by_a_newer_server() -> pb.Member:
    newer = member("newer.lab:1", state=99)
    newer.MergeFromString(b"\xf8\x07\x2a")  # field 127, a number
    return newer


@each("said", [all_said(), said_by_a_newer_server()])
def test_all_that_a_server_says_reaches_who_watches(
    directory: RunningDirectory, said: pb.Member
) -> None:
    directory.announce(said)
    watching = directory.watch()
    watching.until(lambda each: said.address in each.members, "the member")
    assert watching.members[said.address] == said


def test_the_end_of_a_stream_says_nothing_and_silence_makes_a_suspect() -> None:
    with running() as directory:
        watching = directory.watch()
        announcing = directory.announce(member())
        watching.until_state("a.lab:1", SERVING)
        announcing.end()
        with pytest.raises(StopIteration):
            next(announcing.call)
        directory.pass_time(2.9)
        directory.announce(member("b.lab:1"))
        watching.until_state("b.lab:1", SERVING)
        assert watching.state("a.lab:1") == SERVING
        directory.pass_time(0.1)
        watching.until_state("a.lab:1", SUSPECT)
        directory.announce(member("a.lab:1", "another"))
        watching.until_state("a.lab:1", SERVING)


def test_a_server_that_breaks_off_is_no_fault_of_the_directory() -> None:
    """Streams have lines in the log only if they are refused."""
    with running() as directory:
        directory.announce(member()).call.cancel()
        until(lambda: not directory.directory.service.announcers.peers, "the stream has ended")
    assert [line for line in directory.events() if line["event"] == "call"] == []


def test_where_nothing_changes_there_is_a_message_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "_SPOKEN_SECONDS", 0.01)
    with running() as directory:
        directory.watch().until(lambda each: len(each.messages) > 5, "messages without a change")


def test_a_directory_that_has_just_started_says_that_it_does_not_know_all() -> None:
    with running() as directory:
        watching = directory.watch()
        assert not watching.messages[0].complete
        directory.pass_time(3.0)
        watching.until(lambda each: each.messages[-1].complete, "the table is complete")


def test_many_changes_of_load_are_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads wait for the next look, here the one that another change asks for."""
    for seconds in "_LOOK_SECONDS", "_SPOKEN_SECONDS":
        monkeypatch.setattr(feed, seconds, 10 * PATIENCE)
    with running() as directory:
        watching = directory.watch()
        announcing = directory.announce(member())
        watching.until_state("a.lab:1", SERVING)
        before = len(watching.messages)
        for running_now in range(100):
            announcing.beat(member(load=pb.MemberLoad(running=running_now)))
        announcing.beat(member(state=DRAINING, load=pb.MemberLoad(running=100)))
        watching.until_state("a.lab:1", DRAINING)
        assert watching.members["a.lab:1"].load.running == 100
        assert len(watching.messages) == before + 1


def test_who_does_not_read_is_told_all_that_has_changed_in_one_message() -> None:
    told = Feed(MemberTable(0.0), Log(stream=io.StringIO()))
    messages = told.messages(lambda: True)
    next(messages)
    for number, state in product(range(50), (SERVING, DRAINING)):
        said = pb.AnnounceRequest(member=member(f"h:{number + 1}", state=state), sequence=state)
        told.beat(read_beat(said.SerializeToString()), "one")
    until(lambda: told._now.version == told.ask(lambda table: table.version), "all is announced")
    message = pb.WatchMembersResponse.FromString(next(messages))
    assert [each.state for each in message.changed] == [DRAINING] * 50
    told.stop()


def test_who_does_not_read_delays_nobody() -> None:
    """What it is told fills its connection, and the rest waits at the directory."""
    labels = {f"label{number}": "x" * 250 for number in range(32)}
    own = [("grpc.use_local_subchannel_pool", 1)]

    def is_told(members: dict[str, pb.Member]) -> bool:
        return [each.load.running for each in members.values()] == [20] * 20

    with running() as directory, grpc.insecure_channel(directory.addresses[0], own) as slow:
        call = stubs.DirectoryServiceStub(slow).WatchMembers(pb.WatchMembersRequest())
        next(call)  # and reads no more for a while
        watching = directory.watch()
        announcings = [Announcing(directory.channel) for _ in range(20)]
        for count in range(21):
            load, state = pb.MemberLoad(running=count), DRAINING if count % 2 else SERVING
            for number, announcing in enumerate(announcings):
                where = f"large{number}.lab:1"
                announcing.beat(member(where, state=state, labels=labels, load=load))
        watching.until(lambda each: is_told(each.members), "the other one is told")
        members: dict[str, pb.Member] = {}
        while not is_told(members):
            members |= {each.address: each for each in next(call).changed}


MANY_LABELS = {f"l{number}": "" for number in range(33)}
LARGE_LABELS = {f"l{number}": "x" * 1000 for number in range(20)}
BY_ADDRESS = {
    "expected HOST:PORT": ["", "a.lab", "a.lab:0", "a.lab:65536", "unix:/run/x", "a.lab:1\n"],
    "expected an address that others": ["0.0.0.0:1"],
    "expected the name or IP": ["dns:1", "dns:///a.lab:1", "a.lab:1,b.lab:1", "a" * 254 + ":1"],
}
WRONG: list[tuple[dict[str, Any], str]] = [
    *(({"address": one}, f"address: {why}") for why, many in BY_ADDRESS.items() for one in many),
    ({"instance": ""}, "instance: expected the id of the announcing process"),
    ({"host": "h" * 257}, "host: expected at most 256 bytes"),
    ({"version": "\x1b[2J"}, "version: expected at most 256 bytes"),
    ({"labels": MANY_LABELS}, "labels: expected at most 32 labels"),
    ({"labels": {"A": "1"}}, "labels: expected a name"),
    ({"labels": {"a" * 64: "1"}}, "labels: expected a name"),
    ({"labels": {"a": "x" * 257}}, "labels: expected a value of a of at most"),
    ({"labels": LARGE_LABELS}, "member: expected at most 16384 bytes"),
]


def refused(announcing: Announcing, given: pb.Member, sequence: int | None = None) -> str:
    """Why a beat is refused."""
    with pytest.raises(grpc.RpcError) as caught:
        announcing.beat(given, sequence)
    error = refusal(caught.value)
    assert isinstance(error, MessageError)
    return str(error)


@each(("said", "why"), WRONG)
def test_a_member_that_nobody_could_use_is_refused(
    directory: RunningDirectory, said: dict[str, Any], why: str
) -> None:
    assert refused(Announcing(directory.channel), member(**said)).startswith(why)
    reasons = [line["reason"] for line in directory.events() if line.get("method") == "Announce"]
    assert MessageError.reason in reasons


def test_a_beat_has_a_number_and_a_stream_announces_one_server(directory: RunningDirectory) -> None:
    why = refused(Announcing(directory.channel), member(), sequence=0)
    assert "sequence: expected 1 or more" in why
    why = refused(directory.announce(member("one.lab:1")), member("two.lab:1"))
    assert "expected one.lab:1, as in the first beat" in why


def test_of_one_stream_200_beats_are_read_at_once_and_then_100_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    standing = SimpleNamespace(monotonic=lambda: 5.0, sleep=slept.append)
    monkeypatch.setattr(service, "time", standing)
    pace = service._Pace()
    for _ in range(202):
        pace.keep()
    assert slept == pytest.approx([0.01, 0.02])


@each("message", [b"\xff", b"\x0a\xff"])
def test_bytes_that_are_no_beat_are_refused(directory: RunningDirectory, message: bytes) -> None:
    method: Any = directory.channel.stream_stream("/npucall.v1.DirectoryService/Announce")
    with pytest.raises(grpc.RpcError) as caught:
        next(method(iter([message]), timeout=PATIENCE))
    assert isinstance(refusal(caught.value), MessageError)


def test_a_message_of_megabytes_is_refused_before_it_is_read(directory: RunningDirectory) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        Announcing(directory.channel).beat(member(host="x" * 2**21))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_no_more_watch_than_there_is_room_for() -> None:
    with running(max_connections=1) as directory:
        directory.watch()
        stub = stubs.DirectoryServiceStub(directory.channel)
        with pytest.raises(grpc.RpcError) as caught:
            next(stub.WatchMembers(pb.WatchMembersRequest()))
        error = refusal(caught.value)
        assert isinstance(error, QueueFullError)
        assert error.details["setting"] == "max_connections"


def test_a_directory_that_goes_down_ends_all_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_LAST_ANSWERS_SECONDS", 0.1)
    with running() as directory:
        watching = directory.watch()
        announcing = directory.announce(member())
        directory.directory.drain()
        watching.until(lambda each: each.ended, "the end of who watches")
        with pytest.raises((grpc.RpcError, StopIteration)):
            announcing.beat(member())


def test_health_and_reflection_answer_for_the_directory(directory: RunningDirectory) -> None:
    name = "npucall.v1.DirectoryService"
    asked = health_pb2.HealthCheckRequest(service=name)
    answer = health_pb2_grpc.HealthStub(directory.channel).Check(asked, timeout=PATIENCE)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    stub = reflection_pb2_grpc.ServerReflectionStub(directory.channel)
    (listed,) = stub.ServerReflectionInfo(iter([request]), timeout=PATIENCE)
    assert name in {each.name for each in listed.list_services_response.service}


def test_metrics_tell_how_many_members_there_are() -> None:
    with running(metrics_listen="127.0.0.1:0") as directory:
        directory.announce(member()).beat(member())
        directory.watch().until_state("a.lab:1", SERVING)
        where = directory.directory._listener._metrics_address
        with urllib.request.urlopen(f"http://{where}/metrics", timeout=PATIENCE) as answer:
            lines = answer.read().decode().splitlines()
    assert {
        'npucall_directory_members{state="serving"} 1.0',
        'npucall_directory_members{state="draining"} 0.0',
        'npucall_directory_members{state="suspect"} 0.0',
        "npucall_directory_watchers 1.0",
        "npucall_directory_beats_total 2.0",
        "npucall_serving 1.0",
    } <= set(lines)


@pytest.mark.alone
@pytest.mark.parametrize("rounds", only(2, 85))
def test_streams_that_are_over_leave_nothing_though_nobody_collects_garbage(rounds: int) -> None:
    """As with a server's calls. Two rounds are 24 streams of each kind, most of them cancelled."""

    def streams(running: RunningDirectory) -> None:
        announcing = [running.announce(member(f"{n}.lab:1")) for n in range(AT_ONCE)]
        watching = [running.watch() for _ in range(AT_ONCE)]
        for one in announcing[::2]:
            one.end()
            list(one.call)
        for left in (*announcing[1::2], *watching):
            left.call.cancel()

    with running() as started:
        streams(started)
        gc.collect()
        gc.disable()
        before = rest()
        for _ in range(rounds):
            streams(started)
        until(lambda: not rest() - before, "all is gone")
