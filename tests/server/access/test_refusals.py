"""Everybody who is not known is refused by name, whatever he asks for, over real sockets."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import grpc
import jwt
import pytest
from grpc_reflection.v1alpha import reflection_pb2
from tests.server.fakes import PATIENCE, until
from tests.server.issuer import Issuer
from tests.server.raw import call_of
from tests.server.tenant_server import (
    SERVICE,
    US,
    Refusal,
    TenantServer,
    ask,
    bearer,
    refusal,
    refusal_in,
    who,
)
from tests.shared import Memory, Side

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall_server.access import local_users, tokens
from npucall_server.settings.tenants import Role
from npucall_server.shared import side_socket, unix_sockets

Make = Callable[[TenantServer], str]

Metadata = tuple[tuple[str, str], ...]


def revoked_token(server: TenantServer) -> str:
    token = server.token("fired")
    with server.channel() as channel:
        assert who(channel, bearer(token)).name == "fired"
    server.revoke(token)
    server.server.reload()
    return token


def signed_with_the_public_key(server: TenantServer) -> str:
    """HS256, whose secret is what everybody can read: what confuses careless servers."""

    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    text = f"{part({'alg': 'HS256', 'kid': 'one', 'typ': 'JWT'})}.{part(server.issuer.claims())}"
    mac = hmac.digest(server.issuer.public_pem(), text.encode(), hashlib.sha256)
    return f"{text}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"


def signed_by_somebody_else(server: TenantServer) -> str:
    with Issuer() as other:
        return signed(server, "RS256", other.keys["one"][1], "one")


def signed(server: TenantServer, algorithm: str, key: Any, name: str) -> str:
    return jwt.encode(server.issuer.claims(), key, algorithm, {"kid": name})


def with_header(header: bytes) -> Make:
    """A token of which nothing but the header is looked at."""
    text = base64.urlsafe_b64encode(header).decode().rstrip("=")
    return lambda _: f"{text}.e30.AAAA"


def with_claims(**claims: Any) -> Make:
    return lambda server: server.issuer.token(**claims)


TOKENS: dict[str, tuple[Make, str]] = {
    "forged": (lambda _: tokens.PREFIX + "A" * 43, "unknown"),
    # Who reads the file of tokens has none of them.
    "hash in a token's place": (lambda s: tokens.PREFIX + tokens.hash_of(s.token()), "unknown"),
    "revoked": (revoked_token, "unknown"),
    "expired": (lambda server: server.token("late", seconds=-1), "expired"),
    "of no tenant": (lambda server: server.token(tenant="gone"), "tenant"),
    "no token": (lambda _: "letmein", "malformed"),
    "nested header": (with_header(b"[" * 5000), "malformed"),
    "header that is a list": (with_header(b"[]"), "malformed"),
    "header without algorithm": (with_header(b"{}"), "algorithm"),
    "algorithm that is a list": (with_header(b'{"alg": []}'), "algorithm"),
    "key that is a number": (with_header(b'{"alg": "RS256", "kid": 1}'), "claim"),
    "malformed jwt": (lambda _: "a.b.c", "malformed"),
    "unsigned": (lambda s: signed(s, "none", None, "one"), "algorithm"),
    "HS256 with the public key": (signed_with_the_public_key, "algorithm"),
    "wrong key": (signed_by_somebody_else, "signature"),
    "unknown key": (lambda s: signed(s, "RS256", s.issuer.keys["one"][1], "two"), "key"),
    "expired jwt": (with_claims(seconds=-31), "expired"),
    "not yet valid": (lambda s: s.issuer.token(nbf=time.time() + 3600), "not_yet_valid"),
    "wrong audience": (with_claims(aud="https://other"), "audience"),
    "no audience": (with_claims(aud=None), "claim"),
    "no end": (with_claims(exp=None), "claim"),
    "wrong issuer": (with_claims(iss="https://evil.example"), "issuer"),
    "no claim": (with_claims(sub=None), "claim"),
    "unmapped claim": (with_claims(sub="repo:evil/vision:x"), "tenant"),
    "claim of two tenants": (with_claims(sub="repo:lab/shared:x"), "tenant"),
    "forged local credential": (lambda _: "npl_" + "A" * 80, "unknown"),
}
"""What makes a token, and the fault with which it is refused."""
REASONS = {"expired": "CREDENTIAL_EXPIRED", "tenant": "TENANT_UNKNOWN"}
"""The reasons of these faults; that of all others is CREDENTIAL_INVALID."""


def execute(**storage: Any) -> bytes:
    request = pb.ExecuteRequest(call=call_of(2), storage=[tensor_pb2.Storage(**storage)] * 3)
    return request.SerializeToString()


UNARY: dict[str, tuple[str, bytes]] = {
    "Execute": ("Execute", execute(data=bytes(8))),
    "Execute in shared memory": (
        "Execute",
        execute(region=tensor_pb2.Region(id=bytes(16), length=8)),
    ),
    "Plan": ("Plan", pb.PlanRequest(call=call_of(2)).SerializeToString()),
    "ListOperators": ("ListOperators", b""),
    "GetOperator": ("GetOperator", b""),
    "GetServerInfo": ("GetServerInfo", b""),
    "Execute of what is no message": ("Execute", b"\xff"),
}


def ask_for(channel: grpc.Channel, what: str, metadata: Metadata) -> None:
    if what != "ExecuteStream":
        ask(channel, *UNARY[what], metadata=metadata)
        return
    opened: Any = channel.stream_stream(f"{SERVICE}/ExecuteStream")  # type: ignore[call-arg]
    next(opened(iter(()), metadata=metadata, timeout=PATIENCE))


def refused(channel: grpc.Channel, what: str, metadata: Metadata) -> Refusal:
    """How a method is refused; it must be UNAUTHENTICATED."""
    with pytest.raises(grpc.RpcError) as raised:
        ask_for(channel, what, metadata)
    assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
    return refusal(raised.value)


METHODS = (*UNARY, "ExecuteStream")


def test_a_token_that_is_none_is_refused_by_name_whatever_is_asked_for(
    server: TenantServer, channel: grpc.Channel, subtests: pytest.Subtests
) -> None:
    for name, (make, fault) in TOKENS.items():
        token, reason = make(server), REASONS.get(fault, "CREDENTIAL_INVALID")
        for what in METHODS:
            with subtests.test(name, method=what):
                told = refused(channel, what, bearer(token))
                assert (told.reason, told.fault) == (reason, fault)
                assert token not in told.message
        with subtests.test(name, method="shared memory"):
            told = refusal_in(server.ask_side(bytes=1, authorization=f"Bearer {token}").error)
            assert (told.reason, told.fault) == (reason, fault)


def test_a_call_without_a_credential_is_told_where_this_hosts_users_get_one(
    server: TenantServer, subtests: pytest.Subtests
) -> None:
    """On a Unix socket too."""
    for target in server.plain, server.unix:
        with server.channel(target) as channel:
            for what in METHODS:
                with subtests.test(what, target=target):
                    told = refused(channel, what, ())
                    assert told.reason == "CREDENTIAL_MISSING"
                    assert told.details["credential_socket"] == str(server.side)


def test_a_certificate_of_no_tenant_is_refused(
    server: TenantServer, subtests: pytest.Subtests
) -> None:
    with server.channel(pair=server.authority.client("mallory.lab")) as channel:
        for what in METHODS:
            with subtests.test(what):
                told = refused(channel, what, ())
                assert (told.reason, told.fault) == ("TENANT_UNKNOWN", "tenant")


def test_who_may_announce_servers_may_do_nothing_else(
    server: TenantServer, channel: grpc.Channel, subtests: pytest.Subtests
) -> None:
    token = server.token("npu1", role=Role.SERVER)
    for what in METHODS:
        with subtests.test(what):
            with pytest.raises(grpc.RpcError) as raised:
                ask_for(channel, what, bearer(token))
            assert refusal(raised.value).reason == "PERMISSION_DENIED"


def test_what_is_no_bearers_token_is_malformed(
    channel: grpc.Channel, subtests: pytest.Subtests
) -> None:
    for text in "Basic YWxpY2U6eA==", "Bearer", "Bearer ", "npc_x", "Bearer  x", "Bearer a b":
        with subtests.test(text):
            told = refused(channel, "Plan", (("authorization", text),))
            assert (told.reason, told.fault) == ("CREDENTIAL_INVALID", "malformed")


def test_two_credentials_are_refused_though_each_is_good(
    server: TenantServer, channel: grpc.Channel
) -> None:
    first, second = bearer(server.token("anna")), bearer(server.token("bert"))
    assert refused(channel, "GetServerInfo", first + second).reason == "CREDENTIAL_INVALID"


def test_a_credential_of_16_kib_is_read(channel: grpc.Channel) -> None:
    """gRPC's own limit would be 8 KiB of all metadata."""
    long = f"{'a' * 8000}.{'b' * 8000}.c"
    assert refused(channel, "GetServerInfo", bearer(long)).reason == "CREDENTIAL_INVALID"


def test_a_token_counts_before_the_certificate_even_if_it_is_refused(server: TenantServer) -> None:
    with server.channel(pair=server.authority.client("dora.vision.lab")) as channel:
        assert who(channel).name == "dora.vision.lab"
        assert who(channel, bearer(server.token("alice"))).name == "alice"
        assert refused(channel, "Plan", bearer("npc_x")).reason == "CREDENTIAL_INVALID"


def test_a_local_users_credential_that_has_ended_is_refused_with_where_to_get_another(
    server: TenantServer, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    users, long_ago = server.core.access.users, time.time() - 3600
    assert users is not None
    with monkeypatch.context() as patched:
        patched.setattr(local_users, "time", SimpleNamespace(time=lambda: long_ago))
        credential = users.credential(US)
    told = refused(channel, "Execute", bearer(credential))
    assert told.reason == "CREDENTIAL_EXPIRED"
    assert told.details["credential_socket"] == str(server.side)


def test_reflection_is_for_known_callers(server: TenantServer, channel: grpc.Channel) -> None:
    known = bearer(server.token())
    request = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
    for version in "v1", "v1alpha":
        path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
        describe: Any = channel.stream_stream(path)  # type: ignore[call-arg]
        with pytest.raises(grpc.RpcError) as raised:
            next(describe(iter([request]), timeout=PATIENCE))
        assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
        (data,) = describe(iter([request]), metadata=known, timeout=PATIENCE)
        answer = reflection_pb2.ServerReflectionResponse.FromString(data)
        assert answer.list_services_response.service


def test_health_is_for_everybody(channel: grpc.Channel) -> None:
    call: Any = channel.unary_unary("/grpc.health.v1.Health/Check")  # type: ignore[call-arg]
    assert call(b"", timeout=PATIENCE) == b"\x08\x01"


def somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel tells the server that whoever connects is a user of no tenant."""
    monkeypatch.setattr(unix_sockets, "who_connected", lambda _: (4711, US + 1))


def test_a_user_of_no_tenant_gets_neither_memory_nor_a_credential_but_by_a_token(
    server: TenantServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    somebody_else(monkeypatch)
    for answer in server.ask_side(bytes=1), server.ask_side(credential=True):
        told = refusal_in(answer.error)
        assert (told.reason, told.fault) == ("TENANT_UNKNOWN", "tenant")
    answer = server.ask_side(bytes=1, authorization=f"Bearer {server.token()}")
    assert len(answer.id) == 16


@pytest.mark.usefixtures("no_collector")
def test_a_region_answers_to_the_caller_alone_who_got_it_and_is_free_when_he_goes(
    server: TenantServer, channel: grpc.Channel
) -> None:
    alice, again, bob = (server.token(name) for name in ("alice", "alice", "bob"))
    with Memory(server.side, 4096, f"Bearer {alice}") as memory:
        request = execute(region=memory.put(0, bytes(8)).region)
        assert ask(channel, "Execute", request, bearer(alice))
        assert ask(channel, "Execute", request, bearer(again))
        with pytest.raises(grpc.RpcError) as raised:
            ask(channel, "Execute", request, bearer(bob))
    assert refusal(raised.value).reason == "SHARED_MEMORY"
    until(lambda: not server.regions.bytes_taken, "the memory is given back")


def test_a_tenant_has_no_more_shared_memory_than_its_quota(server: TenantServer) -> None:
    """64 KiB, for all of its callers together."""
    first, second = (f"Bearer {server.token(name, 'speech')}" for name in ("eve", "frank"))
    with Memory(server.side, 60 << 10, first), Memory(server.side, 4 << 10, second):
        told = refusal_in(server.ask_side(bytes=1, authorization=second).error)
    assert told.reason == "QUOTA"
    assert told.details["quota"] == "shared_memory"


def test_one_user_cannot_keep_others_from_the_side_socket(
    server: TenantServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_socket, "MOST_SILENT", 2)
    with Side(server.side), Side(server.side), Side(server.side) as third:
        assert third.is_closed()
        somebody_else(monkeypatch)
        assert server.ask_side(bytes=1, authorization=f"Bearer {server.token()}").id
