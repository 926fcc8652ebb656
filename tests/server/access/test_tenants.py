"""Tenants: who belongs to which, what is wrong with their settings; the keys of an issuer."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from pydantic import ValidationError
from tests.server.fakes import until
from tests.server.issuer import Issuer, write_keys
from tests.server.serving import serving
from tests.server.tenant_server import ask

from npucall.errors import TenantUnknownError
from npucall_server.access import belonging, keys
from npucall_server.access.keys import FetchedKeys, FileKeys
from npucall_server.commands.access import run_tenants
from npucall_server.exits import ExitCode
from npucall_server.settings.server import ServerSettings
from npucall_server.settings.tenants import Tenant, Tenants
from npucall_server.telemetry.log import Log

VISION = Tenant(
    users=(1000, "alice"), certificates=("*.vision.lab", "bob@lab"), claims=("repo:vision/*",)
)
SPEECH = Tenant(claims=("repo:*/shared:main", "exact[1]?"))
BOTH = Tenants({"vision": VISION, "speech": SPEECH})


def belongs(find: Any, *arguments: Any) -> object:
    try:
        return find(BOTH, *arguments)
    except TenantUnknownError:
        return None


def test_a_claim_belongs_to_the_one_tenant_that_has_its_value(subtests: pytest.Subtests) -> None:
    for value, tenant in {
        "repo:vision/a:main": "vision",
        "repo:vision/": "vision",
        "repo:vision": None,
        "xrepo:vision/a": None,
        "repo:a/shared:main": "speech",
        "repo:vision/shared:main": None,  # of both
        "exact[1]?": "speech",  # * alone is special
        "exact1x": None,
        "REPO:vision/a": None,
        "repo:vision/a\nb": "vision",
    }.items():
        with subtests.test(value):
            assert belongs(belonging.of_claim, value) == tenant


def test_a_certificate_belongs_by_its_first_name_that_does() -> None:
    found = partial(belongs, belonging.of_certificate)
    assert found(["a.vision.lab"]) == ("vision", "a.vision.lab")
    assert found(["localhost", "bob@lab", "a.vision.lab"]) == ("vision", "bob@lab")
    assert found(["vision.lab"]) is None
    assert found([]) is None


def test_a_user_belongs_by_number_or_name() -> None:
    found = partial(belongs, belonging.of_user)
    assert found(1000, "x") == found(1, "alice") == "vision"
    assert found(1, "1000") is None
    assert found(0, "root") is None


ISSUER = {"oidc_issuer": "https://ci.example", "oidc_audience": "x"}


def test_settings_that_would_know_nobody_or_anybody_are_refused(
    subtests: pytest.Subtests,
) -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"token_hashes": "/x"}, "token_hashes: expected tenants with it, found none"),
        (ISSUER, "oidc_issuer: expected tenants with it, found none"),
        ({"tenants": {"a": {}}}, "tenants: expected a way to know their callers, found none"),
        ({"tenants": {"a": {}}, "shared_memory": "/x"}, "tenants: expected a way to know"),
        ({"tenants": {"A": {}}, "token_hashes": "/x"}, "tenants"),
        ({"tenants": {"a": {"wieght": 1}}, "token_hashes": "/x"}, "tenants.a.wieght"),
        (
            {"tenants": {"a": {}}, "oidc_issuer": "https://x"},
            "oidc_audience: expected a value, since oidc_issuer is set, found none",
        ),
        (
            {"tenants": {"a": {}}, "oidc_keys": "/x"},
            "oidc_issuer: expected a value, since oidc_keys is set, found none",
        ),
        (
            {"tenants": {"a": {}}, **ISSUER, "oidc_issuer": "http://ci.example"},
            "expected https://HOST..., found 'http://ci.example'",
        ),
        ({"tenants": {"a": {}}, **ISSUER, "oidc_keys": "file:///x"}, "expected https://HOST..."),
        (
            {"tenants": {"a": {"users": [1]}, "b": {"users": [1]}}, "token_hashes": "/x"},
            "users: expected 1 in one tenant, found a and b",
        ),
    ]
    for given, said in rows:
        with subtests.test(said):
            with pytest.raises(ValidationError) as refused:
                ServerSettings(**given)
            places = [".".join(map(str, each["loc"])) for each in refused.value.errors()]
            assert said in f"{refused.value} {' '.join(places)}"


def test_each_way_to_know_callers_suffices(subtests: pytest.Subtests) -> None:
    ways: list[dict[str, Any]] = [
        {"token_hashes": "/x"},
        ISSUER,
        {**ISSUER, "oidc_issuer": "http://127.0.0.1:1"},
        {"shared_memory": "/x", "tenants": {"a": {"users": [1]}}},
        {"tls_certificate": "/c", "tls_key": "/k", "tls_client_ca": "/a"},
    ]
    for way in ways:
        with subtests.test(**way):
            assert ServerSettings(**{"tenants": {"a": {}}, **way}).knows_callers
    assert not ServerSettings().knows_callers


def test_check_shows_what_each_tenant_may_do_and_warns_of_what_cannot_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tokens").write_text(f"{'0' * 64} gone bob - never\nnonsense\n")
    config = tmp_path / "settings.toml"
    config.write_text(
        f'token_hashes = "{tmp_path}/tokens"\nframes_socket = "off"\n'
        '[tenants.vision]\nweight = 4\nmemory = "4GiB"\nadmins = ["alice"]\nusers = [1000]\n'
        '[tenants.speech]\nclass = "batch"\nclaims = ["repo:*"]\n'
        '[tenants.other]\nclaims = ["repo:x"]\n'
    )
    assert run_tenants(["check", str(config)]) == 0
    shown = capsys.readouterr()
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in shown.out.splitlines()}
    assert lines["vision"] == "interactive 4 user; admins: alice memory 4.0GiB users 1000"
    assert lines["speech"] == "batch 1 user none claims repo:*"
    for warning in (
        "tenants.vision.users: has no effect, since frames_socket is off",
        "tenants.speech.claims: has no effect, since oidc_issuer",
        "tenants.other.claims: repo:x may match the same callers as repo:* of tenants.speech",
        "token_hashes: the token of bob is for the tenant gone",
        "line 2: expected hash",
    ):
        assert warning in shown.err


def test_check_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests
) -> None:
    config = tmp_path / "settings.toml"
    for text, said in {
        "[tenants.a]\nweight = 0\n": "tenants.a.weight: Input should be greater than or equal",
        "queue_length = 1\n": "tenants: expected tables [tenants.NAME] in ",
        "[tenants\n": "config: expected valid TOML in ",
        "[tenants.a]\n": "tenants: expected a way to know their callers",
    }.items():
        with subtests.test(text):
            config.write_text(text)
            assert run_tenants(["check", str(config)]) == ExitCode.SETTINGS
            shown = capsys.readouterr()
            assert said in shown.err
            assert shown.out == ""


def test_without_tenants_nothing_is_read_again() -> None:
    with serving() as server:
        server.server.reload()
        with grpc.insecure_channel(server.target) as channel:
            ask(channel)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


def test_an_issuer_is_asked_once_a_minute_at_most_whatever_tokens_name(issuer: Issuer) -> None:
    fetched = FetchedKeys("", issuer.url, Log())
    until(lambda: fetched.find("one") is not None, "its key is known")
    for number in range(1000):
        assert fetched.find(f"unknown{number}") is None
    fetched.stop()
    assert issuer.asked == ["/.well-known/openid-configuration", "/keys"]


def test_keys_stay_while_their_issuer_does_not_answer(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "BETWEEN_SECONDS", 0.0)
    fetched = FetchedKeys(f"{issuer.url}/keys", issuer.url, Log())
    until(lambda: fetched.find("one") is not None, "its key is known")
    issuer.broken = True
    most = len(issuer.asked) + 1
    until(lambda: not fetched.find("two") and len(issuer.asked) > most, "it was asked twice more")
    assert fetched.find("one") is not None
    issuer.add("two")
    issuer.broken = False
    until(lambda: fetched.find("two") is not None, "it answers again")
    fetched.stop()


def test_an_issuer_whose_configuration_is_anothers_has_no_keys_here(issuer: Issuer) -> None:
    fetched = FetchedKeys("", f"{issuer.url}/", Log())
    until(lambda: bool(issuer.asked), "it is asked")
    assert fetched.find("one") is None
    fetched.stop()
    assert issuer.asked == ["/.well-known/openid-configuration"]


NO_KEYS = [
    b"", b"[]", b"{}", b'{"keys": 1}', b'{"keys": []}', b'{"keys": [1]}', b"\xff",
    b'{"keys": [{"kty": "oct", "kid": "one", "k": "c2VjcmV0"}]}',
    b'{"keys": [{"kty": "RSA", "kid": "one", "n": "AQAB"}]}',
]  # fmt: skip


def test_a_file_without_public_keys_is_refused(tmp_path: Path, subtests: pytest.Subtests) -> None:
    path = tmp_path / "keys"
    for document in NO_KEYS:
        path.write_bytes(document)
        with subtests.test(document=document), pytest.raises(ValueError, match="expected"):
            FileKeys(path, Log())


def test_a_file_of_keys_is_read_again(tmp_path: Path, issuer: Issuer) -> None:
    path = write_keys(issuer, tmp_path / "keys")
    found = FileKeys(path, Log())
    assert found.find(None) is not None  # the only one
    issuer.add("two")
    write_keys(issuer, path)
    assert found.look()
    assert found.find("two") is not None
    assert found.find(None) is None
    path.write_text(json.dumps({"keys": []}))
    assert not found.look()
    assert found.find("one") is not None
