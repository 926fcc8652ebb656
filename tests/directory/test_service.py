"""The service of a directory: what those who announce and those who watch are answered."""

from __future__ import annotations

import urllib.request
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from npucall.errors import MessageError, QueueFullError
from npucall.v1 import directory_service_pb2 as pb
from npucall.v1 import directory_service_pb2_grpc as stubs
from npucall_server.directory import feed

from .house import PATIENCE, Announcing, Watching, member, refusal, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .house import Running


@pytest.fixture(scope="module")
def house() -> Iterator[Running]:
    with running() as started:
        yield started


def test_who_watches_is_told_the_whole_table_first(house: Running) -> None:
    house.announce(member("first.lab:1"))
    house.announce(member("second.lab:1"))
    watching = house.watch()
    watching.until(lambda each: each.messages, "a message")
    assert {"first.lab:1", "second.lab:1"} <= watching.members.keys()
    assert watching.messages[0].version == 1
    assert watching.messages[0].epoch == house.directory.feed.epoch


def test_who_watches_is_told_what_changes(house: Running) -> None:
    watching = house.watch()
    announcing = house.announce(member("change.lab:1"))
    watching.until_state("change.lab:1", pb.MEMBER_STATE_SERVING)
    going = member("change.lab:1")
    going.state = pb.MEMBER_STATE_DRAINING
    announcing.beat(going)
    watching.until_state("change.lab:1", pb.MEMBER_STATE_DRAINING)
    going.state = pb.MEMBER_STATE_GONE
    announcing.beat(going)
    watching.until_state("change.lab:1", None)
    assert [each.version for each in watching.messages] == [*range(1, len(watching.messages) + 1)]


def test_all_that_a_server_says_reaches_who_watches(house: Running) -> None:
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
    house.announce(said)
    watching = house.watch()
    watching.until_state("all.lab:7", pb.MEMBER_STATE_SERVING)
    assert watching.members["all.lab:7"] == said


def test_what_a_newer_server_says_is_passed_on(house: Running) -> None:
    newer = member("newer.lab:1")
    newer.MergeFromString(b"\xf8\x07\x2a")  # field 127, a number
    newer.state = 99  # type: ignore[assignment]
    house.announce(newer)
    watching = house.watch()
    watching.until(lambda each: "newer.lab:1" in each.members, "the member")
    assert watching.members["newer.lab:1"] == newer


def test_the_end_of_a_stream_says_nothing_and_silence_makes_a_suspect(house: Running) -> None:
    announcing = house.announce(member("silent.lab:1"))
    announcing.end()
    watching = house.watch()
    watching.until_state("silent.lab:1", pb.MEMBER_STATE_SERVING)
    watching.until_state("silent.lab:1", pb.MEMBER_STATE_SUSPECT)
    house.announce(member("silent.lab:1", "another"))
    watching.until_state("silent.lab:1", pb.MEMBER_STATE_SERVING)


def test_where_nothing_changes_there_is_a_message_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "_SPOKEN_SECONDS", 0.05)
    with running() as house:
        watching = house.watch()
        watching.until(lambda each: len(each.messages) > 5, "messages without a change")


def test_a_directory_that_has_just_started_says_that_it_does_not_know_all() -> None:
    with running() as house:
        watching = house.watch()
        watching.until(lambda each: each.messages, "a message")
        assert not watching.messages[0].complete
        watching.until(lambda each: each.messages[-1].complete, "the table is complete")


def test_each_start_has_an_epoch_of_its_own() -> None:
    epochs = set()
    for _ in range(2):
        with running() as house:
            watching = house.watch()
            watching.until(lambda each: each.messages, "a message")
            epochs.add(watching.messages[0].epoch)
    assert len(epochs) == 2


def test_many_changes_of_load_are_few_messages(house: Running) -> None:
    watching = house.watch()
    announcing = house.announce(member("busy.lab:1"))
    watching.until_state("busy.lab:1", pb.MEMBER_STATE_SERVING)
    before = len(watching.messages)
    for running_now in range(500):
        announcing.beat(member("busy.lab:1", load=pb.MemberLoad(running=running_now)))
    watching.until(lambda each: each.members["busy.lab:1"].load.running == 499, "the last load")
    assert len(watching.messages) - before < 200


def test_who_does_not_read_delays_nobody_and_is_told_the_last_state_in_the_end() -> None:
    labels = {f"label{number}": "x" * 250 for number in range(32)}
    with (
        running() as house,
        grpc.insecure_channel(house.addresses[0], [("grpc.use_local_subchannel_pool", 1)]) as slow,
    ):
        call = stubs.DirectoryServiceStub(slow).WatchMembers(pb.WatchMembersRequest())
        first = next(call)  # and reads no more for a while
        watching = house.watch()
        announcings = [
            house.announce(member(f"large{number}.lab:1", labels=labels)) for number in range(20)
        ]
        for round_ in range(1, 30):
            for number, announcing in enumerate(announcings):
                load = pb.MemberLoad(running=round_)
                state = pb.MEMBER_STATE_DRAINING if round_ % 2 else pb.MEMBER_STATE_SERVING
                said = member(f"large{number}.lab:1", labels=labels, load=load)
                said.state = state
                announcing.beat(said)
        watching.until(lambda each: has_all(each.members, 29), "the other one is told")
        members: dict[str, pb.Member] = {}
        count = 0
        while not has_all(members, 29):
            message = next(call)
            count += 1
            members |= {each.address: each for each in message.changed}
        assert first.version == 1
        assert count <= len(watching.messages)


def has_all(members: dict[str, pb.Member], running_now: int) -> bool:
    found = [each.load.running for name, each in members.items() if name.startswith("large")]
    return found == [running_now] * 20


WRONG: dict[str, tuple[pb.Member, str]] = {
    "no address": (member(""), "address: expected HOST:PORT"),
    "no port": (member("a.lab"), "address: expected HOST:PORT"),
    "port 0": (member("a.lab:0"), "address: expected HOST:PORT"),
    "nobody's address": (member("0.0.0.0:1"), "address: expected an address that others"),
    "a question": (member("dns:1"), "address: expected the name or IP"),
    "port 65536": (member("a.lab:65536"), "address: expected HOST:PORT"),
    "a path": (member("unix:/run/x"), "address: expected HOST:PORT"),
    "a scheme": (member("dns:///a.lab:1"), "address: expected the name or IP"),
    "two addresses": (member("a.lab:1,b.lab:1"), "address: expected the name or IP"),
    "a long host": (member("a" * 254 + ":1"), "address: expected the name or IP"),
    "a line break": (member("a.lab:1\n"), "address: expected HOST:PORT"),
    "no instance": (member(instance=""), "instance: expected the id of the announcing process"),
    "a long text": (member(host="h" * 257), "host: expected at most 256 bytes"),
    "what a terminal obeys": (member(version="\x1b[2J"), "version: expected at most 256 bytes"),
    "many labels": (
        member(labels={f"l{number}": "" for number in range(33)}),
        "labels: expected at most 32 labels",
    ),
    "a label's name": (member(labels={"A": "1"}), "labels: expected a name"),
    "a label's long name": (member(labels={"a" * 64: "1"}), "labels: expected a name"),
    "a label's long value": (
        member(labels={"a": "x" * 257}),
        "labels: expected a value of a of at most",
    ),
    "a large member": (
        member(labels={f"l{number}": "x" * 1000 for number in range(20)}),
        "member: expected at most 16384 bytes",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_member_that_nobody_could_use_is_refused(house: Running, name: str) -> None:
    given, why = WRONG[name]
    with pytest.raises(grpc.RpcError) as caught:
        Announcing(house.channel).beat(given)
    error = refusal(caught.value)
    assert isinstance(error, MessageError)
    assert str(error).startswith(why)


def test_a_beat_has_a_number(house: Running) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        Announcing(house.channel).beat(member(), sequence=0)
    assert "sequence: expected 1 or more" in str(refusal(caught.value))


def test_a_stream_announces_one_server(house: Running) -> None:
    announcing = house.announce(member("one.lab:1"))
    with pytest.raises(grpc.RpcError) as caught:
        announcing.beat(member("two.lab:1"))
    assert "expected one.lab:1, as in the first beat" in str(refusal(caught.value))


@pytest.mark.parametrize("bytes_", [b"\xff", b"\x0a\xff"])
def test_bytes_that_are_no_beat_are_refused(house: Running, bytes_: bytes) -> None:
    method: Any = house.channel.stream_stream("/npucall.v1.DirectoryService/Announce")
    with pytest.raises(grpc.RpcError) as caught:
        next(method(iter([bytes_]), timeout=PATIENCE))
    assert isinstance(refusal(caught.value), MessageError)


def test_a_message_of_megabytes_is_refused_before_it_is_read(house: Running) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        Announcing(house.channel).beat(member(host="x" * 2**21))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_no_more_watch_than_there_is_room_for() -> None:
    with running(max_connections=1) as house:
        watching = house.watch()
        watching.until(lambda each: each.messages, "a message")
        with pytest.raises(grpc.RpcError) as caught:
            next(stubs.DirectoryServiceStub(house.channel).WatchMembers(pb.WatchMembersRequest()))
        error = refusal(caught.value)
        assert isinstance(error, QueueFullError)
        assert error.details["setting"] == "max_connections"


def test_a_directory_that_goes_down_ends_all_streams() -> None:
    with running() as house:
        watching = house.watch()
        announcing = house.announce(member())
        house.directory.drain()
        watching.until(lambda each: each.ended, "the end of who watches")
        with pytest.raises((grpc.RpcError, StopIteration)):
            announcing.beat(member())


def test_errors_of_a_stream_are_logged_with_their_reason(house: Running) -> None:
    with pytest.raises(grpc.RpcError):
        Announcing(house.channel).beat(member("nowhere"))
    reasons = [line["reason"] for line in house.logged() if line.get("method") == "Announce"]
    assert MessageError.reason in reasons


def test_health_answers_for_the_directory(house: Running) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    request = health_pb2.HealthCheckRequest(service="npucall.v1.DirectoryService")
    answer = health_pb2_grpc.HealthStub(house.channel).Check(request, timeout=PATIENCE)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_reflection_describes_the_directory(house: Running) -> None:
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    request = reflection_pb2.ServerReflectionRequest(list_services="")
    stub = reflection_pb2_grpc.ServerReflectionStub(house.channel)
    (answer,) = stub.ServerReflectionInfo(iter([request]), timeout=PATIENCE)
    names = {each.name for each in answer.list_services_response.service}
    assert "npucall.v1.DirectoryService" in names


def test_metrics_tell_how_many_members_there_are() -> None:
    with running(metrics_listen="127.0.0.1:0") as house:
        house.announce(member("a.lab:1")).beat(member("a.lab:1"))
        watching = house.watch()
        watching.until_state("a.lab:1", pb.MEMBER_STATE_SERVING)
        where = house.directory._front._metrics_address
        with urllib.request.urlopen(f"http://{where}/metrics", timeout=PATIENCE) as answer:
            lines = answer.read().decode().splitlines()
    assert {
        'npucall_directory_members{state="serving"} 1.0',
        'npucall_directory_members{state="suspect"} 0.0',
        "npucall_directory_watchers 1.0",
        "npucall_directory_beats_total 2.0",
        "npucall_serving 1.0",
    } <= set(lines)


def test_it_listens_on_a_unix_socket_too(tmp_path: Any) -> None:
    with running(listen=f"127.0.0.1:0,unix:{tmp_path}/d") as house:
        house.announce(member())
        with grpc.insecure_channel(f"unix:{tmp_path}/d") as channel:
            Watching(channel).until_state("a.lab:1", pb.MEMBER_STATE_SERVING)
