"""npucall-server certificates: what it makes holds, in its own place alone."""

import stat
import tomllib
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from tests.server.serving import serving

import npucall_client
from npucall.errors import ServerUnreachableError
from npucall_server.commands.certificates import run

HOSTS = "127.0.0.1", "localhost", "node7.lab", "::1"


def test_a_server_and_its_clients_know_each_other_by_what_it_makes(tmp_path: Path) -> None:
    assert run([str(tmp_path), "--host", *HOSTS, "--client", "anna", "--days", "7"]) == 0
    files = {path.name: path for path in tmp_path.iterdir()}
    assert set(files) == {
        "ca.pem", "ca.key", "127.0.0.1.pem", "127.0.0.1.key", "anna.pem", "anna.key",
    }  # fmt: skip
    server_files = {
        "tls_certificate": files["127.0.0.1.pem"],
        "tls_key": files["127.0.0.1.key"],
        "tls_client_ca": files["ca.pem"],
    }
    anna = {"ca": files["ca.pem"], "certificate": files["anna.pem"], "key": files["anna.key"]}
    swapped = {**anna, "certificate": files["127.0.0.1.pem"], "key": files["127.0.0.1.key"]}
    with serving(**server_files) as server:
        with npucall_client.connect(server.target, **anna) as client:
            assert client.server_info().server.device == "fake"
        with pytest.raises(ServerUnreachableError):
            npucall_client.connect(server.target, connect_timeout=0.5, **swapped)


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    run([str(tmp_path / "new"), "--host", "x", "--client", "anna"])
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("new/*.key")}
    assert modes == {"ca.key": 0o600, "x.key": 0o600, "anna.key": 0o600}
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_a_certificate_has_its_names_and_is_good_in_one_place_alone(tmp_path: Path) -> None:
    run([str(tmp_path), "--host", *HOSTS, "--client", "anna", "spiffe://lab/ci"])
    dns, uri, ip = x509.DNSName, x509.UniformResourceIdentifier, x509.IPAddress
    addresses = [ip(ip_address("127.0.0.1")), ip(ip_address("::1"))]
    server = [addresses[0], dns("localhost"), dns("node7.lab"), addresses[1]]
    for name, names, usage in [
        ("127.0.0.1", server, ExtendedKeyUsageOID.SERVER_AUTH),
        ("anna", [dns("anna")], ExtendedKeyUsageOID.CLIENT_AUTH),
        ("spiffe_lab_ci", [uri("spiffe://lab/ci")], ExtendedKeyUsageOID.CLIENT_AUTH),
    ]:
        certificate = x509.load_pem_x509_certificate((tmp_path / f"{name}.pem").read_bytes())
        found = certificate.extensions.get_extension_for_class
        assert found(x509.SubjectAlternativeName).value == x509.SubjectAlternativeName(names)
        assert found(x509.ExtendedKeyUsage).value == x509.ExtendedKeyUsage([usage])


def test_the_authority_that_is_there_issues_further_ones(tmp_path: Path) -> None:
    run([str(tmp_path), "--host", "x"])
    authority = (tmp_path / "ca.pem").read_bytes()
    assert run([str(tmp_path), "--client", "anna"]) == 0
    assert (tmp_path / "ca.pem").read_bytes() == authority
    anna = x509.load_pem_x509_certificate((tmp_path / "anna.pem").read_bytes())
    anna.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))


def test_it_says_what_it_wrote_and_which_settings_name_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run([str(tmp_path), "--host", "x", "--announces", "--client", "anna"])
    said = capsys.readouterr().out
    _, _, below = said.partition("in its server.toml:\n")
    assert tomllib.loads(below.partition("\n\n")[0]) == {
        "listen": "tls:0.0.0.0:50051",
        "tls_certificate": f"{tmp_path}/x.pem",
        "tls_key": f"{tmp_path}/x.key",
        "tls_client_ca": f"{tmp_path}/ca.pem",
        "announce": "DIRECTORY",
        "announce_ca": f"{tmp_path}/ca.pem",
    }
    for part in (
        f"wrote {tmp_path}/ca.key",
        f"  export NPUCALL_CA={tmp_path}/ca.pem\n",
        f"NPUCALL_CERTIFICATE={tmp_path}/anna.pem NPUCALL_KEY={tmp_path}/anna.key",
    ):
        assert part in said


def test_what_cannot_be_is_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests
) -> None:
    for arguments, said in [
        ([], "expected --host NAME or --client NAME, found neither"),
        (["--host", "x", "--days", "0"], "days: expected 1 to 3650, found 0"),
        (["--host", "a b"], "host: expected a name of letters, "),
        (["--client", "anna lab"], "client: expected a name of letters, "),
        (["--host", "x", "--client", "x"], "/x.pem, found one"),
        (["--client", "ca"], "/ca.pem, found one"),
    ]:
        with subtests.test(said):
            assert run([str(tmp_path), *arguments]) == 2
            assert said in capsys.readouterr().err
            assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run([str(tmp_path), "--host", "x"])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert run([str(tmp_path), "--client", "anna", "--host", "x"]) == 2
    assert f"expected no file at {tmp_path}/x.pem, found one" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_half_an_authority_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run([str(tmp_path), "--host", "x"])
    (tmp_path / "ca.key").unlink()
    assert run([str(tmp_path), "--client", "anna"]) == 2
    assert "expected an authority and its key in " in capsys.readouterr().err
