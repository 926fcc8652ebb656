"""Who callers are known as, and what happens where that changes, over real sockets."""

import itertools
import time
from types import SimpleNamespace

import grpc
import pytest
from tests.server.fakes import until
from tests.server.raw import RawStream, call_of
from tests.server.tenant_server import TENANTS, TenantServer, ask, bearer, put, refusal, who
from tests.shared import Memory

from npucall.v1 import operator_service_pb2 as pb
from npucall_server.access import keys, tenants_guard
from npucall_server.carriers.multiplex import stream
from npucall_server.settings.tenants import Role


def shown(caller: pb.CallerInfo) -> tuple[str, str, str, str]:
    role, known_by = pb.CallerRole.Name(caller.role), pb.KnownBy.Name(caller.known_by)
    return caller.tenant, caller.name, role[len("CALLER_ROLE_") :], known_by[len("KNOWN_BY_") :]


def test_a_token_says_tenant_name_role_and_end_and_the_tenant_gives_the_role_that_it_lacks(
    server: TenantServer, channel: grpc.Channel
) -> None:
    caller = who(channel, bearer(server.token("alice", role=Role.ADMIN, seconds=100)))
    assert shown(caller) == ("vision", "alice", "ADMIN", "TOKEN")
    assert 0 < caller.expires_seconds <= 100
    for name, role in ("carol", "BENCH"), ("dan", "USER"):
        caller = who(channel, bearer(server.token(name)))
        assert shown(caller) == ("vision", name, role, "TOKEN")


def test_a_job_is_known_by_its_issuers_token(server: TenantServer, channel: grpc.Channel) -> None:
    caller = who(channel, bearer(server.issuer.token(seconds=1000)))
    assert shown(caller) == ("vision", "repo:lab/vision:ref:refs/heads/main", "USER", "JWT")
    assert 100 < caller.expires_seconds <= 1031  # and the seconds by which clocks may differ


def test_a_certificate_is_known_by_its_name(server: TenantServer) -> None:
    for name, role in ("erin.vision.lab", "USER"), ("root.vision.lab", "ADMIN"):
        with server.channel(pair=server.authority.client(name)) as channel:
            caller = who(channel)
        assert shown(caller) == ("vision", name, role, "CERTIFICATE")
        assert caller.expires_seconds > 0


def local_credential(server: TenantServer) -> tuple[tuple[str, str]]:
    answer = server.ask_side(credential=True)
    assert 0 < answer.local_credential.expires_seconds <= 600
    return (("authorization", answer.local_credential.authorization),)


def test_a_user_of_this_host_is_known_by_what_the_side_socket_gave_him(
    server: TenantServer,
) -> None:
    for target in server.plain, server.unix:
        with server.channel(target) as channel:
            tenant, name, _, known_by = shown(who(channel, local_credential(server)))
        assert (tenant, known_by) == ("vision", "LOCAL_USER")
        assert name


def test_many_credentials_take_no_place_on_the_side_socket(server: TenantServer) -> None:
    for _ in range(200):
        local_credential(server)
    side = server.parts.side
    assert side is not None
    until(lambda: not side._holdings, "no connection is left")


def test_memory_without_a_credential_is_that_of_the_processes_user(
    server: TenantServer, channel: grpc.Channel
) -> None:
    with Memory(server.side, 4096) as memory:
        storage = [memory.put(0, bytes(8))] * 3
        request = pb.ExecuteRequest(call=call_of(2), storage=storage).SerializeToString()
        assert ask(channel, "Execute", request, local_credential(server))
        with pytest.raises(grpc.RpcError) as refused:
            ask(channel, "Execute", request, bearer(server.token("mallory")))
    assert refusal(refused.value).reason == "SHARED_MEMORY"


def reason(channel: grpc.Channel, token: str) -> str:
    try:
        ask(channel, metadata=bearer(token))
    except grpc.RpcError as error:
        return refusal(error).reason
    return "OK"


def test_a_token_whose_line_is_deleted_is_refused_soon_and_others_go_on(
    server: TenantServer, channel: grpc.Channel
) -> None:
    token, other = server.token("heidi"), server.token("ivan")
    assert who(channel, bearer(token)).name == "heidi"
    server.revoke(token)
    until(lambda: reason(channel, token) == "CREDENTIAL_INVALID", "it is refused")
    assert who(channel, bearer(other)).name == "ivan"


def test_tenants_are_read_again_and_a_faulty_file_keeps_those_that_there_were(
    server: TenantServer, channel: grpc.Channel
) -> None:
    token = server.token("judy", "new")
    assert reason(channel, token) == "TENANT_UNKNOWN"
    put(server.config, TENANTS + "[tenants.new]\nadmins = ['judy']\n")
    until(lambda: reason(channel, token) == "OK", "the new tenant is known")
    assert shown(who(channel, bearer(token)))[2] == "ADMIN"
    for fault, said in {
        "[tenants.new]\nweight = 0\n": "tenants.new.weight: Input should be greater than",
        "[tenants.new\n": "Expected ']'",
        "queue_length = 3\n": "tenants: expected at least one table [tenants.NAME]",
        "[tenants.a]\nusers = [1]\n[tenants.b]\nusers = [1]\n": "users: expected 1 in one tenant",
    }.items():
        put(server.config, fault)
        until(lambda said=said: said in warnings(server), "it is said")  # type: ignore[misc]
        assert reason(channel, token) == "OK"
    put(server.config, TENANTS)
    until(lambda: reason(channel, token) == "TENANT_UNKNOWN", "the tenant has gone")


def warnings(server: TenantServer) -> str:
    return "\n".join(each["message"] for each in server.events("warning"))


def test_while_the_file_of_tokens_is_away_those_that_there_were_count(
    server: TenantServer, channel: grpc.Channel
) -> None:
    token = server.token("leo")
    text = server.token_file.read_text()
    server.token_file.unlink()
    until(lambda: "the server keeps the old tokens" in warnings(server), "it is said")
    assert who(channel, bearer(token)).name == "leo"
    put(server.token_file, text)


def test_of_an_issuer_that_changes_its_keys_the_new_one_is_fetched_and_the_old_one_forgotten(
    server: TenantServer, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "BETWEEN_SECONDS", 0.0)  # that minute is over
    old = server.issuer.token()
    until(lambda: reason(channel, old) == "OK", "its key is known")
    server.issuer.keys.clear()
    server.issuer.add("another", "ES256")
    new = server.issuer.token("another")
    assert reason(channel, new) == "CREDENTIAL_INVALID"
    until(lambda: reason(channel, new) == "OK", "the new key is known")
    until(lambda: reason(channel, old) == "CREDENTIAL_INVALID", "the old one is known no more")


def opened(channel: grpc.Channel, token: str) -> RawStream:
    """A stream that works."""
    peer = RawStream(channel, metadata=bearer(token))
    assert works(peer, 1)
    return peer


def works(peer: RawStream, call_id: int) -> bool:
    peer.begin(call_id)
    return peer.receive().WhichOneof("frame") == "reply"


def ends_with(peer: RawStream) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as ended:
        list(iter(peer.receive, None))
    assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED
    told = refusal(ended.value)
    return told.reason, told.fault


def settles(server: TenantServer) -> None:
    """No call is left, and no stream."""
    calls, streams = server.executor, server.streams
    until(lambda: not calls.calls_in_flight and not streams._streams, "all is settled")


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """So many seconds pass for the guard."""
    then = time.time() + seconds
    monkeypatch.setattr(tenants_guard, "time", SimpleNamespace(time=lambda: then))


def test_a_stream_ends_when_its_callers_token_is_revoked(
    server: TenantServer, channel: grpc.Channel
) -> None:
    token = server.token("mia")
    peer = opened(channel, token)
    peer.begin_chunked(2)  # one is under way
    server.revoke(token)
    assert ends_with(peer) == ("CREDENTIAL_INVALID", "revoked")
    settles(server)


def test_a_stream_ends_when_its_callers_credential_ends(
    server: TenantServer, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = opened(channel, server.token("noah", seconds=600))
    later(monkeypatch, 601)
    assert ends_with(peer) == ("CREDENTIAL_EXPIRED", "expired")
    settles(server)


def test_a_stream_whose_caller_renews_goes_on(
    server: TenantServer, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = opened(channel, server.token("olga", seconds=600))
    peer.renew(f"Bearer {server.token('olga', seconds=6000)}")
    assert works(peer, 2)
    later(monkeypatch, 601)
    server.look()
    assert works(peer, 3)
    peer.close()
    assert peer.end_of_stream() == "OK"


def test_a_stream_is_not_renewed_by_anothers_credential(
    server: TenantServer, channel: grpc.Channel
) -> None:
    for token in server.token("quentin"), "npc_forged":
        peer = opened(channel, server.token("pia"))
        peer.renew(f"Bearer {token}")
        assert ends_with(peer)[0] == "CREDENTIAL_INVALID"


def test_a_stream_whose_tenant_has_gone_ends(server: TenantServer, channel: grpc.Channel) -> None:
    put(server.config, TENANTS + "[tenants.short]\n")
    server.server.reload()
    peer = opened(channel, server.token("rob", "short"))
    put(server.config, TENANTS)
    assert ends_with(peer) == ("CREDENTIAL_INVALID", "revoked")


@pytest.mark.more
def test_a_stream_whose_caller_reads_nothing_ends_too(
    server: TenantServer, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_UNREAD_SECONDS", 0.5)
    monkeypatch.setattr(server.device, "result", bytes(1 << 19))
    token = server.token("tom")
    peer = opened(channel, token)
    for number in range(2, 66):  # 32 MiB, which gRPC does not take for who does not read
        peer.begin(number, 1 << 17)
    (place,) = server.streams._streams
    until(lambda: len(place._calls.answered) > 8, "answers wait for him to read")
    server.revoke(token)
    settles(server)


def test_a_stream_that_is_never_without_a_call_ends(
    server: TenantServer, channel: grpc.Channel
) -> None:
    token = server.token("uma")
    peer = opened(channel, token)
    server.revoke(token)
    with pytest.raises(grpc.RpcError) as ended:
        all(works(peer, number) for number in itertools.count(2))
    assert refusal(ended.value).fault == "revoked"
    settles(server)


def test_memory_of_a_caller_who_is_revoked_ends(server: TenantServer) -> None:
    token = server.token("sue")
    with Memory(server.side, 4096, f"Bearer {token}") as memory:
        server.revoke(token)
        assert memory.is_closed()
