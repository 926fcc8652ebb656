"""Who gets in by which address: TLS, mutual TLS, none, over real sockets."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.certificates import Authority, Pair
from tests.server.fakes import PATIENCE, until
from tests.server.serving import Served, serving

from npucall.environment.watched_file import WatchedFile
from npucall_server.commands.health import run as ask_health
from npucall_server.serving.binding import SettingsError

INFO = "/npucall.v1.OperatorService/GetServerInfo"
CHECK = "/grpc.health.v1.Health/Check"


def ask(
    target: str,
    ca: Path | None = None,
    pair: Pair | None = None,
    method: str = INFO,
    **options: str,
) -> str:
    """OK, or why a server did not answer."""
    given: list[tuple[str, Any]] = [("grpc.use_local_subchannel_pool", 1), *options.items()]
    if ca is None:
        channel: Any = grpc.insecure_channel(target, given)
    else:
        files = (pair.key.read_bytes(), pair.certificate.read_bytes()) if pair else (None, None)
        credentials = grpc.ssl_channel_credentials(ca.read_bytes(), *files)
        channel = grpc.secure_channel(target, credentials, given)
    with channel:
        try:
            channel.unary_unary(method)(b"", timeout=PATIENCE)
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
    return "OK"


def is_refused(*asked: Any, **options: Any) -> bool:
    return ask(*asked, **options).startswith("UNAVAILABLE")


def files(pair: Pair, **more: Any) -> dict[str, Any]:
    """The settings."""
    return {"tls_certificate": pair.certificate, "tls_key": pair.key, **more}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority whom nobody trusts."""
    return Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def addresses(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """A server on an address of every kind, by prefix; health is the one for probes."""
    folder = tmp_path_factory.mktemp("s")
    listen = f"mtls:127.0.0.1:0,tls:127.0.0.1:0,127.0.0.1:0,plain:127.0.0.1:0,unix:{folder}/s"
    health = f"unix:{folder}/health"
    given = files(authority.server(), tls_client_ca=authority.ca, health_listen=health)
    with serving(listen=listen, **given) as served:
        (line,) = served.events("serving")
        bound = [each.partition(":")[::2] for each in line["addresses"].split(", ")]
        assert [kind for kind, _ in bound] == ["mtls", "tls", "mtls", "plain", "plain"]
        assert line["address"] == served.target == bound[0][1]
        names = "mtls", "tls", "mtls by default", "plain", "unix"
        yield dict(zip(names, (where for _, where in bound), strict=True)) | {"health": health}


def test_an_address_lets_in_whom_its_kind_says(
    addresses: dict[str, str], authority: Authority, stranger: Authority
) -> None:
    anna, ca = authority.client("anna"), authority.ca
    others = (ca, stranger.client("eve")), (ca, authority.server("another"))
    for name in "mtls", "mtls by default":
        assert ask(addresses[name], ca, anna) == "OK"
        assert all(is_refused(addresses[name], *other) for other in ((ca,), *others, ()))
    assert ask(addresses["tls"], ca) == ask(addresses["tls"], ca, anna) == "OK"
    assert is_refused(addresses["tls"])
    assert ask(addresses["plain"]) == ask(addresses["unix"]) == "OK"


def test_a_client_refuses_a_server_of_another_authority_or_name(
    addresses: dict[str, str], authority: Authority, stranger: Authority
) -> None:
    said = ask(addresses["tls"], stranger.ca)
    assert said.startswith("UNAVAILABLE")
    assert "CERTIFICATE_VERIFY_FAILED" in said
    other = {"grpc.ssl_target_name_override": "elsewhere.lab"}
    assert is_refused(addresses["tls"], authority.ca, **other)


def test_a_clients_certificate_is_refused_in_a_servers_place(authority: Authority) -> None:
    with serving(**files(authority.client("localhost"))) as served:
        assert is_refused(served.target, authority.ca, authority.client("anna"))


def test_health_is_served_without_tls_and_nothing_else(addresses: dict[str, str]) -> None:
    assert ask(addresses["health"], method=CHECK) == "OK"
    assert ask(addresses["health"]).startswith("UNIMPLEMENTED")


def test_health_for_probes_says_that_a_server_drains(tmp_path: Path) -> None:
    health = f"unix:{tmp_path}/health"
    with serving(health_listen=health) as served:
        assert ask_health([health]) == 0
        served.parts.listener.report_not_serving()
        assert ask_health([health]) == 1


@pytest.fixture
def changing(tmp_path: Path) -> Iterator[tuple[Authority, Served]]:
    """A server whose certificate is that of an authority; their files change."""
    authority = Authority(tmp_path)
    with serving(**files(authority.server())) as served:
        yield authority, served


def test_a_new_certificate_counts_for_new_connections_and_open_ones_outlive_it(
    changing: tuple[Authority, Served], tmp_path: Path
) -> None:
    before, served = changing
    credentials = grpc.ssl_channel_credentials(before.ca.read_bytes())
    with grpc.secure_channel(served.target, credentials) as channel:
        info: Any = channel.unary_unary(INFO)  # type: ignore[call-arg]
        assert info(b"", timeout=PATIENCE)
        after = Authority(tmp_path, "after")
        after.server()
        assert ask(served.target, after.ca) == "OK"
        assert is_refused(served.target, before.ca)
        assert info(b"", timeout=PATIENCE)
    until(lambda: len(served.events("certificates")) == 1, "the line of a new certificate")


def test_half_of_a_new_pair_leaves_the_old_one_and_is_told_once(
    changing: tuple[Authority, Served], tmp_path: Path
) -> None:
    authority, served = changing
    key = (tmp_path / "server.key").read_bytes()
    new = Authority(tmp_path, "new")
    pair = new.server()
    new_key = pair.key.read_bytes()
    pair.key.write_bytes(key)
    for _ in range(3):
        assert ask(served.target, authority.ca) == "OK"
    until(lambda: len(served.events("warning")) == 1, "a warning")
    (warning,) = served.events("warning")
    assert "its key, not encrypted, in tls_key" in warning["message"]
    pair.key.write_bytes(new_key)
    assert ask(served.target, new.ca) == "OK"
    assert len(served.events("warning")) == 1


def test_a_bad_file_leaves_the_old_certificate(
    changing: tuple[Authority, Served], tmp_path: Path
) -> None:
    authority, served = changing
    certificate = tmp_path / "server.pem"
    good = certificate.read_bytes()
    for count, content in enumerate((None, b"", b"nonsense"), 1):
        certificate.unlink() if content is None else certificate.write_bytes(content)
        assert ask(served.target, authority.ca) == "OK"
        until(lambda count=count: len(served.events("warning")) == count, "a warning")  # type: ignore[misc]
        certificate.write_bytes(good)
        assert ask(served.target, authority.ca) == "OK"


def test_new_authorities_of_clients_count_for_new_connections(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    clients = tmp_path / "clients.pem"
    clients.write_bytes(authority.ca.read_bytes())
    with serving(**files(authority.server(), tls_client_ca=clients)) as served:
        anna, eve = authority.client("anna"), other.client("eve")
        assert ask(served.target, authority.ca, anna) == "OK"
        assert is_refused(served.target, authority.ca, eve)
        clients.write_bytes(other.ca.read_bytes())
        assert ask(served.target, authority.ca, eve) == "OK"
        assert is_refused(served.target, authority.ca, anna)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("pem", "tls_certificate: expected a certificate in tls_certificate "),
        ("key", "tls_certificate: expected a certificate in tls_certificate "),
        ("missing", "tls_certificate: expected a file that the server can read: "),
        ("ca", "tls_certificate: expected certificates in tls_client_ca "),
    ],
)
def test_a_server_does_not_start_with_files_that_are_no_good(
    tmp_path: Path, broken: str, said: str
) -> None:
    authority = Authority(tmp_path)
    pair = authority.server()
    if broken == "missing":
        pair.key.unlink()
    else:
        bad = {"pem": pair.certificate, "key": pair.key, "ca": authority.ca}[broken]
        bad.write_bytes(b"nonsense")
    with pytest.raises(SettingsError, match=said):
        Served(**files(pair, tls_client_ca=authority.ca))


def test_a_file_that_the_server_may_not_read_says_who_has_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Certificates that root made stay root's; root reads them here, so that it is pretended."""

    def refuse(_: WatchedFile) -> bytes:
        raise PermissionError(13, "Permission denied", "/etc/npucall/tls/server.key")

    pair = Authority(tmp_path).server()
    monkeypatch.setattr(WatchedFile, "changed", refuse)
    with pytest.raises(SettingsError) as refused:
        Served(**files(pair))
    said = str(refused.value)
    assert "/etc/npucall/tls/server.key" in said
    assert f"runs as the user {os.geteuid()} of the group {os.getegid()}" in said
    assert f"chgrp {os.getegid()}, mode 640, folders 750" in said
