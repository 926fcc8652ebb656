"""Who may announce what: a server the hosts of its certificate or tenant, a user nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.certificates import Authority

from npucall.errors import (
    CredentialExpiredError,
    CredentialInvalidError,
    CredentialMissingError,
    PermissionDeniedError,
)
from npucall.v1 import directory_service_pb2 as pb
from npucall_server.access import tokens
from npucall_server.access.identity import Identity, KnownBy, Role
from npucall_server.access.tenants import Tenant, Tenants
from npucall_server.directory.hosts import Hosts

from .house import Announcing, Watching, member, refusal, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.certificates import Pair

    from .house import Running

TENANTS = """
[tenants.servers]
role = "server"
certificates = ["*.npu.lab"]
hosts = ["rack7-*.lab"]

[tenants.vision]
certificates = ["*.vision.lab"]
admins = ["root.vision.lab"]
"""


class Lab:
    """A directory with tenants, by TLS with certificates and with tokens."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.folder, self.token_file = folder, folder / "tokens"
        config = folder / "settings.toml"
        config.write_text(TENANTS)
        self.token_file.touch(mode=0o600)
        self.pair = self.authority.server()
        self.settings: dict[str, Any] = {
            "config": config,
            "listen": "mtls:127.0.0.1:0,tls:127.0.0.1:0",
            "tls_certificate": self.pair.certificate,
            "tls_key": self.pair.key,
            "tls_client_ca": self.authority.ca,
            "token_hashes": self.token_file,
        }

    def token(self, tenant: str, role: Role | None = None, seconds: float = 3600) -> str:
        text, token = tokens.new(tenant, "alice", role, seconds)
        tokens.append(self.token_file, token)
        return text

    def channel(self, house: Running, pair: Pair | None) -> grpc.Channel:
        """With a certificate, or without one to the second address."""
        given = [None, None] if pair is None else [pair.key, pair.certificate]
        files = [path and path.read_bytes() for path in (self.authority.ca, *given)]
        where = house.addresses[0 if pair else 1]
        return grpc.secure_channel(where, grpc.ssl_channel_credentials(*files))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(tmp_path_factory.mktemp("lab"))


@pytest.fixture(scope="module")
def house(lab: Lab) -> Iterator[Running]:
    with running(**lab.settings) as started:
        yield started


def announced(channel: grpc.Channel, host: str, token: str = "") -> Any:
    """What a forger, or an honest server, is answered: its number, or the error."""
    metadata = [("authorization", f"Bearer {token}")] if token else []
    try:
        return Announcing(channel, metadata).beat(member(f"{host}:50051"))
    except grpc.RpcError as error:
        return refusal(error)


@pytest.mark.parametrize(
    ("host", "may"),
    [
        ("a.npu.lab", True),
        ("A.NPU.lab", True),
        ("10.0.0.7", True),
        ("rack7-3.lab", True),  # of its tenant
        ("b.npu.lab", False),
        ("10.0.0.8", False),
        ("a.npu.lab.evil.org", False),
        ("npu.lab", False),
        ("rack8-3.lab", False),
    ],
)
def test_a_server_announces_the_hosts_of_its_certificate_and_of_its_tenant(
    lab: Lab, house: Running, host: str, may: bool
) -> None:
    pair = lab.authority.member("a", ("a.npu.lab", "10.0.0.7"))
    with lab.channel(house, pair) as channel:
        answer = announced(channel, host)
    if may:
        assert answer == 1
    else:
        assert isinstance(answer, PermissionDeniedError)
        assert f"found {host.lower()}" in str(answer)


def test_a_forged_announcement_is_in_nobodys_table(lab: Lab, house: Running) -> None:
    honest = lab.authority.member("b", ("b.npu.lab",))
    forger = lab.authority.member("c", ("c.npu.lab",))
    user = lab.authority.client("carol.vision.lab")
    with lab.channel(house, honest) as channel, lab.channel(house, forger) as other:
        announcing = Announcing(channel)
        announcing.beat(member("b.npu.lab:1", "honest"))
        assert isinstance(announced(other, "b.npu.lab"), PermissionDeniedError)
        with pytest.raises(grpc.RpcError):
            Announcing(other).beat(member("b.npu.lab:1", "forger", product="forged"))
        with lab.channel(house, user) as users:
            watching = Watching(users)
            watching.until_state("b.npu.lab:1", pb.MEMBER_STATE_SERVING)
            assert watching.members["b.npu.lab:1"].server.instance == "honest"
            assert "b.npu.lab:50051" not in watching.members


@pytest.mark.parametrize("name", ["carol.vision.lab", "root.vision.lab"])
def test_a_user_announces_nothing_not_even_his_own_name(
    lab: Lab, house: Running, name: str
) -> None:
    with lab.channel(house, lab.authority.client(name)) as channel:
        answer = announced(channel, name)
    assert isinstance(answer, PermissionDeniedError)
    assert "expected a caller with the role server" in str(answer)


def test_a_token_announces_the_hosts_of_its_tenant(lab: Lab, house: Running) -> None:
    with lab.channel(house, None) as channel:
        token = lab.token("servers")
        house.directory.reload()
        assert announced(channel, "rack7-1.lab", token) == 1
        answer = announced(channel, "a.npu.lab", token)
    assert isinstance(answer, PermissionDeniedError)


def test_a_users_token_announces_nothing(lab: Lab, house: Running) -> None:
    with lab.channel(house, None) as channel:
        token = lab.token("vision")
        house.directory.reload()
        assert isinstance(announced(channel, "rack7-1.lab", token), PermissionDeniedError)


@pytest.mark.parametrize(
    ("token", "error"),
    [("", CredentialMissingError), ("npc_nobodys", CredentialInvalidError)],
)
def test_who_is_not_known_announces_nothing(
    lab: Lab, house: Running, token: str, error: type[Exception]
) -> None:
    with lab.channel(house, None) as channel:
        assert isinstance(announced(channel, "rack7-1.lab", token), error)


def test_a_server_may_not_watch(lab: Lab, house: Running) -> None:
    pair = lab.authority.member("a", ("a.npu.lab",))
    with lab.channel(house, pair) as channel:
        watching = Watching(channel)
        watching.until(lambda each: each.ended, "the refusal")
        answer = refusal(watching.call)
    assert isinstance(answer, PermissionDeniedError)
    assert "and nothing else" in str(answer)


def test_a_token_that_is_revoked_ends_its_stream(lab: Lab, tmp_path: Path) -> None:
    own = Lab(tmp_path)
    with running(**own.settings) as house, own.channel(house, None) as channel:
        token = own.token("servers")
        house.directory.reload()
        announcing = Announcing(channel, [("authorization", f"Bearer {token}")])
        announcing.beat(member("rack7-1.lab:1"))
        own.token_file.write_text("")
        house.directory.reload()
        with pytest.raises(grpc.RpcError) as caught:
            announcing.beat(member("rack7-1.lab:1"))
    assert isinstance(refusal(caught.value), CredentialInvalidError)


def test_a_certificate_that_has_ended_announces_nothing_more() -> None:
    ended = Identity("servers", "a", Role.SERVER, KnownBy.CERTIFICATE, expires=1.0)
    from npucall_server.access.tenants_guard import TenantsGuard

    with pytest.raises(CredentialExpiredError):
        TenantsGuard(Tenants({"servers": Tenant(role="server")})).check(ended)


@pytest.mark.parametrize(
    ("names", "host", "may"),
    [
        (("*.npu.lab",), "a.npu.lab", True),
        (("*.npu.lab",), "a.b.npu.lab", False),
        (("*.npu.lab",), "npu.lab", False),
        (("*",), "a", False),
        (("*.",), "a.", False),
        (("spiffe://lab/a",), "a", False),
        (("0:0::1",), "::1", True),
        (("::1",), "0:0:0::1", True),
        ((), "a", False),
    ],
)
def test_a_certificate_names_a_host_as_clients_judge_it(
    names: tuple[str, ...], host: str, may: bool
) -> None:
    hosts = Hosts(Tenants({"servers": Tenant(role="server")}))
    who = Identity("servers", "a", Role.SERVER, KnownBy.CERTIFICATE, names=names)
    if may:
        hosts.check(who, host)
    else:
        with pytest.raises(PermissionDeniedError):
            hosts.check(who, host)
