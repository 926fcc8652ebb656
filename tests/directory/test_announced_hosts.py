"""Who may announce what: a server the hosts of its certificate or tenant, a user nothing."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from tests.rows import each

from npucall.errors import (
    CredentialExpiredError,
    CredentialInvalidError,
    CredentialMissingError,
    PermissionDeniedError,
)
from npucall_server.access.identity import Identity, KnownBy
from npucall_server.access.tenants_guard import TenantsGuard
from npucall_server.directory.hosts import Hosts
from npucall_server.settings.tenants import Role, Tenant, Tenants

from .directories import (
    SERVING,
    Announcing,
    TenantsDirectory,
    Watching,
    member,
    refusal,
    running,
    running_with_tenants,
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantsDirectory]:
    with running_with_tenants(tmp_path_factory.mktemp("tenants")) as started:
        yield started


@each("host", ["A.NPU.lab", "10.0.0.7", "rack7-3.lab"])
def test_a_server_announces_the_hosts_of_its_certificate_and_of_its_tenant(
    directory: TenantsDirectory, host: str
) -> None:
    pair = directory.authority.member("a", ("a.npu.lab", "10.0.0.7"))
    assert directory.answer(pair, host) == 1
    other = directory.answer(pair, f"{host}.evil.org")
    assert isinstance(other, PermissionDeniedError)
    assert f"found {host.lower()}.evil.org" in str(other)


def test_a_forged_announcement_is_in_nobodys_table(directory: TenantsDirectory) -> None:
    honest = directory.authority.member("b", ("b.npu.lab",))
    forger = directory.authority.member("c", ("c.npu.lab",))
    user = directory.authority.client("carol.vision.lab")
    with directory.channel_of(honest) as channel, directory.channel_of(forger) as other:
        Announcing(channel).beat(member("b.npu.lab:1", "honest"))
        with pytest.raises(grpc.RpcError):
            Announcing(other).beat(member("b.npu.lab:1", "forger", product="forged"))
        with directory.channel_of(user) as users:
            watching = Watching(users)
            watching.until_state("b.npu.lab:1", SERVING)
            assert watching.members["b.npu.lab:1"].server.instance == "honest"


@each("name", ["carol.vision.lab", "root.vision.lab"])
def test_a_user_announces_nothing_not_even_his_own_name(
    directory: TenantsDirectory, name: str
) -> None:
    answer = directory.answer(directory.authority.client(name), name)
    assert isinstance(answer, PermissionDeniedError)
    assert "expected a caller with the role server" in str(answer)


def test_a_token_announces_the_hosts_of_its_tenant_and_anything_else_nothing(
    directory: TenantsDirectory,
) -> None:
    token, users = directory.token("servers"), directory.token("vision")
    assert directory.answer(None, "rack7-1.lab", token) == 1
    assert isinstance(directory.answer(None, "a.npu.lab", token), PermissionDeniedError)
    for known, error in (
        (users, PermissionDeniedError),
        ("", CredentialMissingError),
        ("npc_nobodys", CredentialInvalidError),
    ):
        assert isinstance(directory.answer(None, "rack7-1.lab", known), error)


def test_a_server_may_not_watch(directory: TenantsDirectory) -> None:
    with directory.channel_of(directory.authority.member("d", ("d.npu.lab",))) as channel:
        watching = Watching(channel)
        watching.until(lambda each: each.ended, "the refusal")
        answer = refusal(watching.call)
    assert isinstance(answer, PermissionDeniedError)
    assert "and nothing else" in str(answer)


def test_a_token_that_is_revoked_ends_its_stream(tmp_path: Path) -> None:
    with running_with_tenants(tmp_path) as directory, directory.channel_of() as channel:
        token = directory.token("servers")
        announcing = Announcing(channel, [("authorization", f"Bearer {token}")])
        announcing.beat(member("rack7-1.lab:1"))
        directory.token_file.write_text("")
        directory.directory.reload()
        with pytest.raises(grpc.RpcError) as caught:
            announcing.beat(member("rack7-1.lab:1"))
    assert isinstance(refusal(caught.value), CredentialInvalidError)


SERVERS = Tenants({"servers": Tenant(role="server", hosts=("rack7-*.lab",))})


def test_a_certificate_that_has_ended_announces_nothing_more() -> None:
    ended = Identity("servers", "a", Role.SERVER, KnownBy.CERTIFICATE, expires=1.0)
    with pytest.raises(CredentialExpiredError):
        TenantsGuard(SERVERS).check(ended)


def test_without_tenants_a_server_of_the_same_user_announces_itself_over_a_unix_socket_alone(
    tmp_path: Path,
) -> None:
    """Before: any user of the host, over TCP, and clients sent their tokens to him."""
    path = tmp_path / "directory.sock"
    listen = f"unix:{path},127.0.0.1:0"
    with (
        running(listen=listen, insecure_bind=False) as directory,
        grpc.insecure_channel(directory.addresses[1]) as anybodys,
    ):
        assert path.stat().st_mode & 0o777 == 0o600
        directory.announce(member("b.npu.lab:1", "honest"))
        with pytest.raises(grpc.RpcError) as caught:
            Announcing(anybodys).beat(member("b.npu.lab:2", "of anybody"))
        assert isinstance(refusal(caught.value), PermissionDeniedError)
        assert "insecure_bind" in str(refusal(caught.value))
        assert set(directory.watch().members) == {"b.npu.lab:1"}
        assert not [each for each in directory.events() if each["event"] == "warning"]


def test_a_directory_says_that_it_lets_everybody_announce_servers() -> None:
    with running() as directory:
        directory.announce(member("b.npu.lab:1"))
        said = [each["message"] for each in directory.events() if each["event"] == "warning"]
        assert len(said) == 1
        assert f"everybody who reaches {directory.addresses[0]} can announce servers" in said[0]


@each(
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
        (("10.0.0.7",), "10.0.0.8", False),
        ((), "rack7-3.lab", True),
        ((), "rack8-3.lab", False),
        ((), "a", False),
    ],
)
def test_a_certificate_names_a_host_as_clients_judge_it(
    names: tuple[str, ...], host: str, may: bool
) -> None:
    who = Identity("servers", "a", Role.SERVER, KnownBy.CERTIFICATE, names=names)
    if may:
        Hosts(SERVERS).check(who, host)
    else:
        with pytest.raises(PermissionDeniedError):
            Hosts(SERVERS).check(who, host)
