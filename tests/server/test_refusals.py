"""Everybody who is not known is refused by name, whatever he asks for, over real sockets."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import TYPE_CHECKING, Any

import grpc
import jwt
import pytest
from grpc_reflection.v1alpha import reflection_pb2
from tests.shared import Memory, Side

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import shared_memory_pb2, tensor_pb2
from npucall_server.access import tokens
from npucall_server.access.identity import Role
from npucall_server.shared import side_socket

from .issuer import Issuer
from .lab import (
    SERVICE,
    US,
    Answer,
    Lab,
    ask,
    bearer,
    expired_credential,
    lab_in,
    refusal,
    refusal_in,
    who,
)
from .scripted import PATIENCE
from .streams import call_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


Metadata = tuple[tuple[str, str], ...]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab_in(tmp_path_factory.mktemp("l")) as lab:
        yield lab


@pytest.fixture(scope="module")
def channel(lab: Lab) -> Iterator[grpc.Channel]:
    with lab.channel() as channel:
        yield channel


# --- Who is refused -------------------------------------------------------------------------------


def expired_token(lab: Lab) -> str:
    return lab.token("late", seconds=-1)


def revoked_token(lab: Lab) -> str:
    token = lab.token("fired")
    with lab.channel() as channel:
        assert who(channel, bearer(token)).name == "fired"
    lab.revoke(token)
    lab.server.reload()
    return token


def forged_hash(lab: Lab) -> str:
    """Who reads the file of tokens has none of them."""
    return tokens.PREFIX + tokens.hash_of(lab.token())


def unsigned(lab: Lab) -> str:
    return jwt.encode(lab.issuer.claims(), None, "none", {"kid": "one"})  # type: ignore[arg-type]


def signed_with_the_public_key(lab: Lab) -> str:
    """HS256, whose secret is what everybody can read: what confuses careless servers."""

    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    text = f"{part({'alg': 'HS256', 'kid': 'one', 'typ': 'JWT'})}.{part(lab.issuer.claims())}"
    mac = hmac.digest(lab.issuer.public_pem(), text.encode(), hashlib.sha256)
    return f"{text}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"


def signed_by_somebody_else(lab: Lab) -> str:
    with Issuer() as other:
        return jwt.encode(lab.issuer.claims(), other.keys["one"][1], "RS256", {"kid": "one"})


def signed_by_an_unknown_key(lab: Lab) -> str:
    return jwt.encode(lab.issuer.claims(), lab.issuer.keys["one"][1], "RS256", {"kid": "two"})


def with_header(header: bytes) -> Callable[[Lab], str]:
    """A token of which nothing but the header is looked at."""
    text = base64.urlsafe_b64encode(header).decode().rstrip("=")
    return lambda _: f"{text}.e30.AAAA"


def with_claims(**claims: Any) -> Callable[[Lab], str]:
    return lambda lab: lab.issuer.token(**claims)


TOKENS: dict[str, tuple[Callable[[Lab], str], str, str]] = {
    "forged": (lambda _: tokens.PREFIX + "A" * 43, "CREDENTIAL_INVALID", "unknown"),
    "hash in a token's place": (forged_hash, "CREDENTIAL_INVALID", "unknown"),
    "revoked": (revoked_token, "CREDENTIAL_INVALID", "unknown"),
    "expired": (expired_token, "CREDENTIAL_EXPIRED", "expired"),
    "of no tenant": (lambda lab: lab.token(tenant="gone"), "TENANT_UNKNOWN", "tenant"),
    "no token": (lambda _: "letmein", "CREDENTIAL_INVALID", "malformed"),
    "nested header": (with_header(b"[" * 5000), "CREDENTIAL_INVALID", "malformed"),
    "header that is a list": (with_header(b"[]"), "CREDENTIAL_INVALID", "malformed"),
    "header without algorithm": (with_header(b"{}"), "CREDENTIAL_INVALID", "algorithm"),
    "algorithm that is a list": (with_header(b'{"alg": []}'), "CREDENTIAL_INVALID", "algorithm"),
    "key that is a number": (
        with_header(b'{"alg": "RS256", "kid": 1}'),
        "CREDENTIAL_INVALID",
        "claim",
    ),
    "malformed jwt": (lambda _: "a.b.c", "CREDENTIAL_INVALID", "malformed"),
    "unsigned": (unsigned, "CREDENTIAL_INVALID", "algorithm"),
    "HS256 with the public key": (signed_with_the_public_key, "CREDENTIAL_INVALID", "algorithm"),
    "wrong key": (signed_by_somebody_else, "CREDENTIAL_INVALID", "signature"),
    "unknown key": (signed_by_an_unknown_key, "CREDENTIAL_INVALID", "key"),
    "expired jwt": (with_claims(seconds=-31), "CREDENTIAL_EXPIRED", "expired"),
    "not yet valid": (with_claims(nbf=time.time() + 3600), "CREDENTIAL_INVALID", "not_yet_valid"),
    "wrong audience": (with_claims(aud="https://other"), "CREDENTIAL_INVALID", "audience"),
    "no audience": (with_claims(aud=None), "CREDENTIAL_INVALID", "claim"),
    "no end": (with_claims(exp=None), "CREDENTIAL_INVALID", "claim"),
    "wrong issuer": (with_claims(iss="https://evil.example"), "CREDENTIAL_INVALID", "issuer"),
    "no claim": (with_claims(sub=None), "CREDENTIAL_INVALID", "claim"),
    "unmapped claim": (with_claims(sub="repo:evil/vision:x"), "TENANT_UNKNOWN", "tenant"),
    "claim of two tenants": (with_claims(sub="repo:lab/shared:x"), "TENANT_UNKNOWN", "tenant"),
    "forged local credential": (lambda _: "npl_" + "A" * 80, "CREDENTIAL_INVALID", "unknown"),
}


@pytest.fixture(scope="module", params=TOKENS)
def refused_token(request: pytest.FixtureRequest, lab: Lab) -> tuple[str, str, str]:
    """A token, and how it is refused."""
    make, reason, fault = TOKENS[request.param]
    return make(lab), reason, fault


# --- What they ask for ----------------------------------------------------------------------------


def placed() -> bytes:
    storage = [tensor_pb2.Storage(region=tensor_pb2.Region(id=bytes(16), length=8))] * 3
    return pb.ExecuteRequest(call=call_of(2), storage=storage).SerializeToString()


def executed() -> bytes:
    storage = [tensor_pb2.Storage(data=bytes(8))] * 3
    return pb.ExecuteRequest(call=call_of(2), storage=storage).SerializeToString()


UNARY: dict[str, tuple[str, bytes]] = {
    "Execute": ("Execute", executed()),
    "Execute in shared memory": ("Execute", placed()),
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


def refused_call(channel: grpc.Channel, what: str, metadata: Metadata) -> Answer:
    """How a method is refused; it must be UNAUTHENTICATED."""
    with pytest.raises(grpc.RpcError) as refused:
        ask_for(channel, what, metadata)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    return refusal(refused.value)


METHODS = (*UNARY, "ExecuteStream")


@pytest.mark.parametrize("what", METHODS)
def test_a_call_with_a_token_that_is_none_is_refused_by_name(
    channel: grpc.Channel, refused_token: tuple[str, str, str], what: str
) -> None:
    token, reason, fault = refused_token
    answer = refused_call(channel, what, bearer(token))
    assert (answer.reason, answer.fault) == (reason, fault)
    assert token not in answer.message


@pytest.mark.parametrize("what", METHODS)
def test_a_call_without_a_credential_is_told_where_this_hosts_users_get_one(
    lab: Lab, channel: grpc.Channel, what: str
) -> None:
    answer = refused_call(channel, what, ())
    assert answer.reason == "CREDENTIAL_MISSING"
    assert answer.details["credential_socket"] == str(lab.side)


def test_callers_on_a_unix_socket_have_to_be_known_too(lab: Lab) -> None:
    with lab.channel(lab.unix) as channel:
        answer = refused_call(channel, "Execute", ())
    assert answer.reason == "CREDENTIAL_MISSING"
    assert answer.details["credential_socket"] == str(lab.side)


@pytest.mark.parametrize("what", METHODS)
def test_a_certificate_of_no_tenant_is_refused(lab: Lab, what: str) -> None:
    with lab.channel(pair=lab.authority.client("mallory.lab")) as channel:
        answer = refused_call(channel, what, ())
    assert (answer.reason, answer.fault) == ("TENANT_UNKNOWN", "tenant")


@pytest.mark.parametrize("what", METHODS)
def test_who_may_announce_servers_may_do_nothing_else(
    lab: Lab, channel: grpc.Channel, what: str
) -> None:
    token = lab.token("npu1", role=Role.SERVER)
    with pytest.raises(grpc.RpcError) as refused:
        ask_for(channel, what, bearer(token))
    assert refusal(refused.value).reason == "PERMISSION_DENIED"


@pytest.mark.parametrize(
    "authorization", ["Basic YWxpY2U6eA==", "Bearer", "Bearer ", "npc_x", "Bearer  x", "Bearer a b"]
)
def test_what_is_no_bearers_token_is_malformed(channel: grpc.Channel, authorization: str) -> None:
    answer = refused_call(channel, "Plan", (("authorization", authorization),))
    assert (answer.reason, answer.fault) == ("CREDENTIAL_INVALID", "malformed")


def test_a_token_counts_before_the_certificate_even_if_it_is_refused(lab: Lab) -> None:
    with lab.channel(pair=lab.authority.client("dora.vision.lab")) as channel:
        assert who(channel).name == "dora.vision.lab"
        assert who(channel, bearer(lab.token("alice"))).name == "alice"
        answer = refused_call(channel, "Plan", bearer("npc_x"))
    assert answer.reason == "CREDENTIAL_INVALID"


def test_a_local_users_credential_that_has_ended_is_refused_with_where_to_get_another(
    lab: Lab, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = refused_call(channel, "Execute", bearer(expired_credential(lab, monkeypatch)))
    assert answer.reason == "CREDENTIAL_EXPIRED"
    assert answer.details["credential_socket"] == str(lab.side)


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection_is_for_known_callers(lab: Lab, channel: grpc.Channel, version: str) -> None:
    path = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
    describe: Any = channel.stream_stream(path)  # type: ignore[call-arg]
    request = reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString()
    with pytest.raises(grpc.RpcError) as refused:
        next(describe(iter([request]), timeout=PATIENCE))
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    known = bearer(lab.token())
    (data,) = describe(iter([request]), metadata=known, timeout=PATIENCE)
    answer = reflection_pb2.ServerReflectionResponse.FromString(data)
    assert answer.list_services_response.service


def test_health_is_for_everybody(channel: grpc.Channel) -> None:
    call: Any = channel.unary_unary("/grpc.health.v1.Health/Check")  # type: ignore[call-arg]
    assert call(b"", timeout=PATIENCE) == b"\x08\x01"


# --- The side socket ------------------------------------------------------------------------------


def side_answer(lab: Lab, **request: Any) -> shared_memory_pb2.SharedMemoryResponse:
    with Side(lab.side) as side:
        side.socket.send(shared_memory_pb2.SharedMemoryRequest(**request).SerializeToString())
        return shared_memory_pb2.SharedMemoryResponse.FromString(side.socket.recv(4096))


def test_memory_for_a_token_that_is_none_is_refused_by_name(
    lab: Lab, refused_token: tuple[str, str, str]
) -> None:
    token, reason, fault = refused_token
    answer = side_answer(lab, bytes=1, authorization=f"Bearer {token}")
    told = refusal_in(answer.error)
    assert (told.reason, told.fault) == (reason, fault)


@pytest.fixture
def _somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel tells the server that whoever connects is a user of no tenant."""
    told = side_socket._CREDENTIALS.pack(4711, US + 1, 0)
    monkeypatch.setattr(side_socket, "_credentials", lambda _: told)


@pytest.mark.usefixtures("_somebody_else")
@pytest.mark.parametrize("request_", [{"bytes": 1}, {"credential": True}])
def test_a_user_of_no_tenant_gets_neither_memory_nor_a_credential(
    lab: Lab, request_: dict[str, Any]
) -> None:
    told = refusal_in(side_answer(lab, **request_).error)
    assert (told.reason, told.fault) == ("TENANT_UNKNOWN", "tenant")


@pytest.mark.usefixtures("_somebody_else")
def test_a_user_of_no_tenant_who_has_a_token_gets_memory(lab: Lab) -> None:
    answer = side_answer(lab, bytes=1, authorization=f"Bearer {lab.token()}")
    assert len(answer.id) == 16


def test_a_region_answers_to_the_caller_alone_who_got_it(lab: Lab, channel: grpc.Channel) -> None:
    alice, bob = lab.token("alice"), lab.token("bob")
    with Memory(lab.side, 4096, f"Bearer {alice}") as memory:
        storage = [memory.put(0, bytes(8))] * 3
        request = pb.ExecuteRequest(call=call_of(2), storage=storage).SerializeToString()
        assert ask(channel, "Execute", request, bearer(alice))
        again = lab.token("alice")  # the same person by another token
        assert ask(channel, "Execute", request, bearer(again))
        with pytest.raises(grpc.RpcError) as refused:
            ask(channel, "Execute", request, bearer(bob))
    assert refusal(refused.value).reason == "SHARED_MEMORY"


def test_a_tenant_has_no_more_shared_memory_than_its_quota(lab: Lab) -> None:
    """64 KiB, for all of its callers together."""
    first, second = (f"Bearer {lab.token(name, 'speech')}" for name in ("eve", "frank"))
    with Memory(lab.side, 60 << 10, first), Memory(lab.side, 4 << 10, second):
        told = refusal_in(side_answer(lab, bytes=1, authorization=second).error)
    assert told.reason == "QUOTA"
    assert told.details["quota"] == "shared_memory"


def test_one_user_cannot_keep_others_from_the_side_socket(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_socket, "MOST_SILENT", 2)
    with Side(lab.side), Side(lab.side), Side(lab.side) as third:
        assert third.is_closed()
        told = side_socket._CREDENTIALS.pack(4711, US + 1, 0)
        monkeypatch.setattr(side_socket, "_credentials", lambda _: told)
        assert side_answer(lab, bytes=1, authorization=f"Bearer {lab.token()}").id
