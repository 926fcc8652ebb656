"""Who gets in by which address: TLS, mutual TLS, none, over real sockets."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.certificates import Authority, Pair
from tests.more import only

from npucall_client.testing import running_server

from .scripted import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from npucall_client.testing import ServerProcess

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
        channel = grpc.insecure_channel(target, given)
    else:
        files = (pair.key.read_bytes(), pair.certificate.read_bytes()) if pair else (None, None)
        channel = grpc.secure_channel(
            target, grpc.ssl_channel_credentials(ca.read_bytes(), *files), given
        )
    with channel:
        method_: Any = channel.unary_unary(method)  # type: ignore[call-arg]
        try:
            method_(b"", timeout=PATIENCE)
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
    return "OK"


def events(server: ServerProcess, name: str) -> list[dict[str, Any]]:
    lines = map(json.loads, server.log.read_text().splitlines())
    return [line for line in lines if line["event"] == name]


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
    flags = *authority.server().flags, f"--tls-client-ca={authority.ca}"
    health = f"unix:{folder}/health"
    with running_server(*flags, f"--health-listen={health}", listen=listen) as server:
        (serving,) = events(server, "serving")
        bound = [each.partition(":")[::2] for each in serving["addresses"].split(", ")]
        kinds = [kind for kind, _ in bound]
        assert kinds == ["mtls", "tls", "mtls", "plain", "plain"]
        assert serving["address"] == server.target == bound[0][1]
        names = "mtls", "tls", "mtls by default", "plain", "unix"
        yield dict(zip(names, (where for _, where in bound), strict=True)) | {"health": health}


@pytest.mark.parametrize("name", ["mtls", "mtls by default"])
def test_mutual_tls_lets_in_who_brings_a_certificate(
    addresses: dict[str, str], authority: Authority, stranger: Authority, name: str
) -> None:
    assert ask(addresses[name], authority.ca, authority.client("anna")) == "OK"
    assert ask(addresses[name], authority.ca).startswith("UNAVAILABLE")
    assert ask(addresses[name], authority.ca, stranger.client("eve")).startswith("UNAVAILABLE")
    assert ask(addresses[name]).startswith("UNAVAILABLE")


def test_tls_lets_in_who_brings_none(addresses: dict[str, str], authority: Authority) -> None:
    assert ask(addresses["tls"], authority.ca) == "OK"
    assert ask(addresses["tls"], authority.ca, authority.client("anna")) == "OK"
    assert ask(addresses["tls"]).startswith("UNAVAILABLE")


@pytest.mark.parametrize("name", ["plain", "unix"])
def test_a_plain_address_lets_in_everybody(addresses: dict[str, str], name: str) -> None:
    assert ask(addresses[name]) == "OK"


def test_a_client_refuses_a_server_of_another_authority(
    addresses: dict[str, str], stranger: Authority
) -> None:
    said = ask(addresses["tls"], stranger.ca)
    assert said.startswith("UNAVAILABLE")
    assert "CERTIFICATE_VERIFY_FAILED" in said


def test_a_client_refuses_a_server_with_another_name(
    addresses: dict[str, str], authority: Authority
) -> None:
    other = {"grpc.ssl_target_name_override": "elsewhere.lab"}
    assert ask(addresses["tls"], authority.ca, **other).startswith("UNAVAILABLE")


def test_a_servers_certificate_is_refused_in_a_clients_place(
    addresses: dict[str, str], authority: Authority
) -> None:
    pair = authority.server("another")
    assert ask(addresses["mtls"], authority.ca, pair).startswith("UNAVAILABLE")


def test_a_clients_certificate_is_refused_in_a_servers_place(
    authority: Authority, tmp_path: Path
) -> None:
    pair = authority.client("localhost")
    with running_server(*pair.flags) as server:
        assert ask(server.target, authority.ca, authority.client("anna")).startswith("UNAVAILABLE")


def test_health_is_served_without_tls_and_nothing_else(addresses: dict[str, str]) -> None:
    assert ask(addresses["health"], method=CHECK) == "OK"
    assert ask(addresses["health"]).startswith("UNIMPLEMENTED")


def test_health_for_probes_says_that_a_server_drains(tmp_path: Path) -> None:
    from npucall_server import health_command

    health = f"unix:{tmp_path}/health"
    with running_server(f"--health-listen={health}") as server:
        assert health_command.run([health]) == 0
        server.stop()
        assert health_command.run([health]) == 1


@pytest.fixture
def changing(tmp_path: Path) -> Iterator[tuple[Authority, ServerProcess]]:
    """A server whose certificate is that of an authority; their files change."""
    authority = Authority(tmp_path)
    with running_server(*authority.server().flags) as server:
        yield authority, server


def test_a_new_certificate_counts_for_new_connections(
    changing: tuple[Authority, ServerProcess], tmp_path: Path
) -> None:
    before, server = changing
    assert ask(server.target, before.ca) == "OK"
    after = Authority(tmp_path, "after")
    after.server()
    assert ask(server.target, after.ca) == "OK"
    assert ask(server.target, before.ca).startswith("UNAVAILABLE")
    until(lambda: len(events(server, "certificates")) == 1, "the line of a new certificate")


def test_connections_that_are_open_outlive_a_new_certificate(
    changing: tuple[Authority, ServerProcess],
) -> None:
    authority, server = changing
    credentials = grpc.ssl_channel_credentials(authority.ca.read_bytes())
    with grpc.secure_channel(server.target, credentials) as channel:
        info: Any = channel.unary_unary(INFO)  # type: ignore[call-arg]
        assert info(b"", timeout=PATIENCE)
        authority.server()
        assert ask(server.target, authority.ca) == "OK"
        assert info(b"", timeout=PATIENCE)


def test_half_of_a_new_pair_leaves_the_old_one_and_is_told_once(
    changing: tuple[Authority, ServerProcess], tmp_path: Path
) -> None:
    authority, server = changing
    key = (tmp_path / "server.key").read_bytes()
    new = Authority(tmp_path, "new")
    pair = new.server()
    new_key = pair.key.read_bytes()
    pair.key.write_bytes(key)
    for _ in range(3):
        assert ask(server.target, authority.ca) == "OK"
    until(lambda: len(events(server, "warning")) == 1, "a warning")
    (warning,) = events(server, "warning")
    assert "its key, not encrypted, in tls_key" in warning["message"]
    pair.key.write_bytes(new_key)
    assert ask(server.target, new.ca) == "OK"
    assert len(events(server, "warning")) == 1


@pytest.mark.parametrize("fault", only("missing", "empty", "no PEM"))
def test_a_bad_file_leaves_the_old_certificate(
    changing: tuple[Authority, ServerProcess], tmp_path: Path, fault: str
) -> None:
    authority, server = changing
    certificate = tmp_path / "server.pem"
    good = certificate.read_bytes()
    if fault == "missing":
        certificate.unlink()
    else:
        certificate.write_bytes(b"" if fault == "empty" else b"nonsense")
    assert ask(server.target, authority.ca) == "OK"
    until(lambda: len(events(server, "warning")) == 1, "a warning")
    certificate.write_bytes(good)
    assert ask(server.target, authority.ca) == "OK"


def test_new_authorities_of_clients_count_for_new_connections(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    other = Authority(tmp_path, "other")
    clients = tmp_path / "clients.pem"
    clients.write_bytes(authority.ca.read_bytes())
    flags = *authority.server().flags, f"--tls-client-ca={clients}"
    with running_server(*flags) as server:
        anna, eve = authority.client("anna"), other.client("eve")
        assert ask(server.target, authority.ca, anna) == "OK"
        assert ask(server.target, authority.ca, eve).startswith("UNAVAILABLE")
        clients.write_bytes(other.ca.read_bytes())
        assert ask(server.target, authority.ca, eve) == "OK"
        assert ask(server.target, authority.ca, anna).startswith("UNAVAILABLE")


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
    {"pem": pair.certificate, "key": pair.key, "ca": authority.ca}.get(
        broken, tmp_path / "x"
    ).write_bytes(b"nonsense")
    if broken == "missing":
        pair.key.unlink()
    flags = *pair.flags, f"--tls-client-ca={authority.ca}"
    with pytest.raises(RuntimeError, match=said), running_server(*flags):
        pass


ROTATIONS = [20, pytest.param(1000, marks=pytest.mark.long)]


@pytest.mark.more
@pytest.mark.parametrize("rotations", ROTATIONS)
def test_no_call_fails_while_certificates_are_rotated(tmp_path: Path, rotations: int) -> None:
    """Certificate and key are replaced one after the other, as most tools do it."""
    authority = Authority(tmp_path)
    flags = *authority.server().flags, f"--tls-client-ca={authority.ca}"
    pairs = itertools.cycle([authority.client("anna"), authority.client("bert")])
    with running_server(*flags) as server:
        for _ in range(rotations):
            authority.server()
            for _ in range(2):
                assert ask(server.target, authority.ca, next(pairs)) == "OK"
        until(lambda: len(events(server, "certificates")) == rotations, "a line a rotation")
        assert not events(server, "warning")
