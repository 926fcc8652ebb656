"""Who callers are known as, and what happens where that changes, over real sockets."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

import grpc
import pytest
from tests.shared import Memory, Side

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import shared_memory_pb2
from npucall_server.access import keys
from npucall_server.access.identity import Role
from npucall_server.services.streams import stream

from .lab import (
    TENANTS,
    Lab,
    ask,
    bearer,
    lab_in,
    refusal,
    wait_until_gone,
    who,
)
from .scripted import until
from .streams import Peer, call_of

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab_in(tmp_path_factory.mktemp("l")) as lab:
        yield lab


@pytest.fixture
def channel(lab: Lab) -> Iterator[grpc.Channel]:
    with lab.channel() as channel:
        yield channel


def shown(caller: pb.CallerInfo) -> tuple[str, str, str, str]:
    role, known_by = pb.CallerRole.Name(caller.role), pb.KnownBy.Name(caller.known_by)
    return caller.tenant, caller.name, role[len("CALLER_ROLE_") :], known_by[len("KNOWN_BY_") :]


# --- By what --------------------------------------------------------------------------------------


def test_a_token_says_tenant_name_role_and_end(lab: Lab, channel: grpc.Channel) -> None:
    caller = who(channel, bearer(lab.token("alice", role=Role.ADMIN, seconds=100)))
    assert shown(caller) == ("vision", "alice", "ADMIN", "TOKEN")
    assert 0 < caller.expires_seconds <= 100


def test_a_token_without_a_role_has_what_its_tenant_gives_its_name(
    lab: Lab, channel: grpc.Channel
) -> None:
    assert shown(who(channel, bearer(lab.token("carol")))) == ("vision", "carol", "BENCH", "TOKEN")
    assert shown(who(channel, bearer(lab.token("dan")))) == ("vision", "dan", "USER", "TOKEN")


def test_a_job_is_known_by_its_issuers_token(lab: Lab, channel: grpc.Channel) -> None:
    token = lab.issuer.token(seconds=100)
    caller = who(channel, bearer(token))
    assert shown(caller) == ("vision", "repo:lab/vision:ref:refs/heads/main", "USER", "JWT")
    assert 100 < caller.expires_seconds <= 131  # and the seconds by which clocks may differ


def test_a_certificate_is_known_by_its_name(lab: Lab) -> None:
    with lab.channel(pair=lab.authority.client("erin.vision.lab")) as channel:
        caller = who(channel)
        assert shown(caller) == ("vision", "erin.vision.lab", "USER", "CERTIFICATE")
        assert caller.expires_seconds > 0
    with lab.channel(pair=lab.authority.client("root.vision.lab")) as channel:
        assert shown(who(channel))[2] == "ADMIN"


def local_credential(lab: Lab) -> str:
    with Side(lab.side) as side:
        side.socket.send(shared_memory_pb2.SharedMemoryRequest(credential=True).SerializeToString())
        answer = shared_memory_pb2.SharedMemoryResponse.FromString(side.socket.recv(4096))
        assert side.is_closed()
    assert 0 < answer.local_credential.expires_seconds <= 600
    return answer.local_credential.authorization


@pytest.mark.parametrize("by_unix_socket", [False, True])
def test_a_user_of_this_host_is_known_by_what_the_side_socket_gave_him(
    lab: Lab, by_unix_socket: bool
) -> None:
    with lab.channel(lab.unix if by_unix_socket else lab.plain) as channel:
        caller = who(channel, (("authorization", local_credential(lab)),))
    assert (caller.tenant, pb.KnownBy.Name(caller.known_by)) == ("vision", "KNOWN_BY_LOCAL_USER")
    assert caller.name


def test_many_credentials_take_no_place_on_the_side_socket(lab: Lab) -> None:
    for _ in range(200):
        local_credential(lab)
    until(lambda: not lab.server.parts.side._holdings, "no connection is left")  # type: ignore[union-attr]


def test_memory_without_a_credential_is_that_of_the_processes_user(
    lab: Lab, channel: grpc.Channel
) -> None:
    credential = (("authorization", local_credential(lab)),)
    with Memory(lab.side, 4096) as memory:
        storage = [memory.put(0, bytes(8))] * 3
        request = pb.ExecuteRequest(call=call_of(2), storage=storage).SerializeToString()
        assert ask(channel, "Execute", request, credential)
        with pytest.raises(grpc.RpcError) as refused:
            ask(channel, "Execute", request, bearer(lab.token("mallory")))
    assert refusal(refused.value).reason == "SHARED_MEMORY"


def test_the_line_of_a_call_says_tenant_and_caller(lab: Lab, channel: grpc.Channel) -> None:
    ask(channel, metadata=bearer(lab.token("grace")))
    until(lambda: any(each["caller"] == "grace" for each in lab.events("call")), "it is written")
    line = next(each for each in lab.events("call") if each["caller"] == "grace")
    assert line["tenant"] == "vision"


# --- What changes ---------------------------------------------------------------------------------


def test_a_token_whose_line_is_deleted_is_refused_soon_and_others_go_on(
    lab: Lab, channel: grpc.Channel
) -> None:
    token, other = lab.token("heidi"), lab.token("ivan")
    assert who(channel, bearer(token)).name == "heidi"
    lab.revoke(token)
    until(lambda: reason(channel, token) == "CREDENTIAL_INVALID", "it is refused")
    assert who(channel, bearer(other)).name == "ivan"


def reason(channel: grpc.Channel, token: str) -> str:
    try:
        ask(channel, metadata=bearer(token))
    except grpc.RpcError as error:
        return refusal(error).reason
    return "OK"


@pytest.mark.more
def test_tenants_are_read_again_and_a_faulty_file_keeps_those_that_there_were(
    lab: Lab, channel: grpc.Channel
) -> None:
    token = lab.token("judy", "new")
    assert reason(channel, token) == "TENANT_UNKNOWN"
    lab.config.write_text(TENANTS + "[tenants.new]\nadmins = ['judy']\n")
    until(lambda: reason(channel, token) == "OK", "the new tenant is known")
    assert shown(who(channel, bearer(token)))[2] == "ADMIN"
    for fault, said in {
        "[tenants.new]\nweight = 0\n": "tenants.new.weight: Input should be greater than",
        "[tenants.new\n": "Expected ']'",
        "queue_length = 3\n": "tenants: expected at least one table [tenants.NAME]",
        "[tenants.a]\nusers = [1]\n[tenants.b]\nusers = [1]\n": "users: expected 1 in one tenant",
    }.items():
        lab.config.write_text(fault)
        lab.server.reload()
        assert said in warnings(lab)
        assert reason(channel, token) == "OK"
    lab.config.write_text(TENANTS)
    until(lambda: reason(channel, token) == "TENANT_UNKNOWN", "the tenant has gone")


def warnings(lab: Lab) -> str:
    return "\n".join(each["message"] for each in lab.events("warning"))


@pytest.mark.more
def test_a_line_of_the_file_of_tokens_that_is_wrong_is_passed_over_and_named(
    lab: Lab, channel: grpc.Channel
) -> None:
    token = lab.token("kim")
    text = lab.token_file.read_text()
    lab.token_file.write_text("# people\n\nnonsense\n" + text)
    until(lambda: "token_hashes: line 3: expected hash, tenant" in warnings(lab), "it is said")
    assert who(channel, bearer(token)).name == "kim"


@pytest.mark.more
def test_while_the_file_of_tokens_is_away_those_that_there_were_count(
    lab: Lab, channel: grpc.Channel
) -> None:
    token = lab.token("leo")
    text = lab.token_file.read_text()
    lab.token_file.unlink()
    until(lambda: "the server keeps the old tokens" in warnings(lab), "it is said")
    assert who(channel, bearer(token)).name == "leo"
    lab.token_file.write_text(text)


def test_of_an_issuer_that_changes_its_keys_the_new_one_is_fetched_and_the_old_one_forgotten(
    lab: Lab, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "BETWEEN_SECONDS", 0.0)  # that minute is over
    old = lab.issuer.token()
    assert reason(channel, old) == "OK"
    del lab.issuer.keys["one"]
    lab.issuer.add("two", "ES256")
    new = lab.issuer.token("two")
    assert reason(channel, new) == "CREDENTIAL_INVALID"
    until(lambda: reason(channel, new) == "OK", "the new key is known")
    until(lambda: reason(channel, old) == "CREDENTIAL_INVALID", "the old one is known no more")


# --- Streams --------------------------------------------------------------------------------------


def opened(channel: grpc.Channel, token: str) -> Peer:
    """A stream that works."""
    peer = Peer(channel, metadata=bearer(token))
    peer.begin(1)
    assert peer.receive().WhichOneof("frame") == "reply"
    return peer


def ends_with(peer: Peer) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as ended:
        list(iter(peer.receive, None))
    assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED  # type: ignore[attr-defined]
    told = refusal(ended.value)
    return told.reason, told.fault


def test_a_stream_ends_when_its_callers_token_is_revoked(lab: Lab, channel: grpc.Channel) -> None:
    token = lab.token("mia")
    peer = opened(channel, token)
    peer.begin_chunked(2)  # one is under way
    lab.revoke(token)
    assert ends_with(peer) == ("CREDENTIAL_INVALID", "revoked")
    wait_until_gone(lab)


def test_a_stream_ends_when_its_callers_credential_ends(lab: Lab, channel: grpc.Channel) -> None:
    peer = opened(channel, lab.token("noah", seconds=3))
    assert ends_with(peer) == ("CREDENTIAL_EXPIRED", "expired")
    wait_until_gone(lab)


def test_a_stream_whose_caller_renews_goes_on(lab: Lab, channel: grpc.Channel) -> None:
    end = time.time() + 3
    peer = opened(channel, lab.token("olga", seconds=3))
    peer.renew(f"Bearer {lab.token('olga')}")
    until(lambda: time.time() > end + 1.5, "the first credential has ended, and was looked at")
    peer.begin(2)
    assert peer.receive().WhichOneof("frame") == "reply"
    peer.close()
    assert peer.end_of_stream() == "OK"


@pytest.mark.parametrize("whose", ["somebody else", "nobody"])
def test_a_stream_is_not_renewed_by_anothers_credential(
    lab: Lab, channel: grpc.Channel, whose: str
) -> None:
    peer = opened(channel, lab.token("pia"))
    token = lab.token("quentin") if whose == "somebody else" else "npc_forged"
    peer.renew(f"Bearer {token}")
    assert ends_with(peer)[0] == "CREDENTIAL_INVALID"


def test_a_stream_whose_tenant_has_gone_ends(lab: Lab, channel: grpc.Channel) -> None:
    lab.config.write_text(TENANTS + "[tenants.short]\n")
    lab.server.reload()
    peer = opened(channel, lab.token("rob", "short"))
    lab.config.write_text(TENANTS)
    assert ends_with(peer) == ("CREDENTIAL_INVALID", "revoked")


@pytest.mark.more
def test_a_stream_whose_caller_reads_nothing_ends_too(
    lab: Lab, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_UNREAD_SECONDS", 0.5)
    token = lab.token("tom")
    peer = opened(channel, token)
    for number in range(2, 66):  # 32 MiB, which gRPC does not take for who does not read
        peer.begin(number, 1 << 17)
    (place,) = lab.server.parts.methods.streams._streams
    until(lambda: len(place._calls.answered) > 8, "answers wait for him to read")
    lab.revoke(token)
    wait_until_gone(lab)


def test_a_stream_that_is_never_without_a_call_ends(lab: Lab, channel: grpc.Channel) -> None:
    token = lab.token("uma")
    peer = opened(channel, token)
    lab.revoke(token)

    def keep_calling() -> None:
        for number in itertools.count(2):
            peer.begin(number)
            peer.receive()

    with pytest.raises(grpc.RpcError) as ended:
        keep_calling()
    assert refusal(ended.value).fault == "revoked"
    wait_until_gone(lab)


def test_memory_of_a_caller_who_is_revoked_ends(lab: Lab) -> None:
    token = lab.token("sue")
    with Memory(lab.side, 4096, f"Bearer {token}") as memory:
        lab.revoke(token)
        assert memory.is_closed()
