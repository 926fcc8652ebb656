"""The file of tokens, the command that writes it, and that nothing else is taken for a token."""

import itertools
import os
import stat
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.server import issuer as issuers

from npucall.errors import CredentialExpiredError, TenantUnknownError, UnauthenticatedError
from npucall_server.access import belonging, tenants_guard, tokens
from npucall_server.access.certificates import Certificate
from npucall_server.access.local_users import LocalUsers
from npucall_server.access.oidc import Issuer
from npucall_server.access.tenants_guard import TenantsGuard
from npucall_server.access.tokens import TokenFile
from npucall_server.commands.access import run_token
from npucall_server.exits import ExitCode
from npucall_server.settings.server import ServerSettings
from npucall_server.settings.tenants import Role, Tenant, Tenants
from npucall_server.telemetry.log import Log

HASH = "0" * 64
US = os.geteuid()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens"


def test_a_line_is_hash_tenant_name_role_and_end(subtests: pytest.Subtests) -> None:
    for line, token in [
        (f"{HASH} vision alice - never", ("vision", "alice", None, "never")),
        (f"  {HASH}\tvision  alice\tbench 2027-02-20T10:00:00Z  # since May", (
            "vision", "alice", Role.BENCH, "2027-02-20T10:00:00Z",
        )),
        (f"{HASH} vision alice admin 2027-02-20", (
            "vision", "alice", Role.ADMIN, "2027-02-20T00:00:00Z",
        )),
        (f"{HASH} vision alice user 2027-02-20T12:00:00+02:00", (
            "vision", "alice", Role.USER, "2027-02-20T10:00:00Z",
        )),
    ]:  # fmt: skip
        with subtests.test(line):
            by_hash, faults = tokens.read(line.encode())
            found = by_hash[HASH]
            assert (found.tenant, found.name, found.role, found.end) == token
            assert faults == []


def test_a_line_that_is_wrong_is_named_and_others_count(subtests: pytest.Subtests) -> None:
    good = f"{'1' * 64} vision bob - never"
    for line, said in [
        ("abc vision alice - never", "hash: expected 64 digits"),
        (f"{HASH.upper()[:-1]}G vision alice - never", "hash: expected 64 digits"),
        (f"{HASH} vision alice - ", "found 4 columns"),
        (f"{HASH} vision alice - never ever", "found 6 columns"),
        (f"{HASH} Vision alice - never", "tenant: expected a name"),
        (f"{HASH} vision alice root never", "role: expected user, bench, admin, server or -"),
        (f"{HASH} vision alice - tomorrow", "end: expected a time as 20"),
        (f"{HASH} vision {'a' * 201} - never", "name: expected at most 200"),
        (f"{HASH} vision a\x1bb - never", "name: expected at most 200"),
    ]:
        with subtests.test(line):
            found, faults = tokens.read(f"# tokens\n{line}\n\n{good}\n".encode())
            assert [token.name for token in found.values()] == ["bob"]
            (fault,) = faults
            assert fault.startswith("line 2: ")
            assert said in fault


def test_a_hash_that_stands_twice_is_the_first_ones() -> None:
    found, faults = tokens.read(f"{HASH} a one - never\n{HASH} b two admin never".encode())
    assert [token.name for token in found.values()] == ["one"]
    assert faults == ["line 2: expected a hash once, found it twice"]


def test_a_new_token_is_known_by_its_hash_alone(path: Path) -> None:
    text, token = tokens.new("vision", "alice", None, 60)
    tokens.append(path, token)
    assert len(text) == len(tokens.PREFIX) + 43  # 256 bits in base64
    assert text[len(tokens.PREFIX) :] not in path.read_text()
    assert TokenFile(path).by_hash[tokens.hash_of(text)].name == "alice"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_lines_that_are_added_at_once_all_stand_there(path: Path) -> None:
    path.write_text("# no end of line")
    made = [tokens.new("vision", f"user{number}", None, 60)[1] for number in range(40)]
    threads = [threading.Thread(target=tokens.append, args=(path, each)) for each in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found, faults = tokens.read(path.read_bytes())
    assert set(found) == {each.hash for each in made}
    assert faults == []


def test_a_file_that_others_may_write_is_named(path: Path) -> None:
    path.touch()
    path.chmod(0o660)
    (fault,) = TokenFile(path).faults
    assert fault.startswith("expected its owner alone to write it: chmod go-w ")


def test_the_command_prints_a_token_alone_and_keeps_its_hash(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is on standard output is what a script reads."""
    flags = ["--tenant", "vision", "--name", "alice", "--days", "90", "--file", str(path)]
    assert run_token(["new", *flags]) == 0
    shown = capsys.readouterr()
    (text,) = shown.out.splitlines()
    assert tokens.hash_of(text) in path.read_text()
    assert text not in shown.err
    assert "token of vision/alice, valid until " in shown.err


def test_the_command_writes_a_token_to_a_new_file_for_its_owner_alone(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "alice.token"
    flags = ["--tenant", "vision", "--name", "alice", "--file", str(path), "--out", str(out)]
    assert run_token(["new", *flags]) == 0
    shown = capsys.readouterr()
    text = out.read_text().strip()
    assert tokens.hash_of(text) in path.read_text()
    assert (shown.out, text in shown.err) == ("", False)
    assert out.stat().st_mode & 0o777 == 0o600
    before = path.read_text()
    assert run_token(["new", *flags]) == ExitCode.SETTINGS
    assert f"--out: expected a new file, found that {out} exists" in capsys.readouterr().err
    assert (out.read_text().strip(), path.read_text()) == (text, before)


def test_the_list_says_whose_tokens_there_are_and_no_hash(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, token = tokens.new("vision", "alice", None, 60)
    tokens.append(path, token)
    tokens.append(path, tokens.new("vision", "bob", Role.ADMIN, -60)[1])
    assert run_token(["list", "--file", str(path)]) == 0
    shown = capsys.readouterr().out
    assert [line.split() for line in shown.splitlines()[1:]] == [
        ["vision", "alice", "of", "the", "tenant", token.end, "ends", "soon"],
        ["vision", "bob", "admin", shown.split()[-2], "ended"],
    ]
    assert tokens.hash_of(text) not in shown


def test_a_token_that_no_line_can_say_is_not_made(
    path: Path, capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests
) -> None:
    for tenant, name, days, said in [
        ("Vision", "alice", "1", "tenant: expected a name of a-z"),
        ("vision", "a b", "1", "found 6 columns"),
        ("vision", "alice", "0", "--days: expected more than 0"),
        ("vision", "alice", "nan", "--days: expected more"),
    ]:
        with subtests.test(said, days=days):
            flags = ["--tenant", tenant, "--name", name, "--days", days, "--file", str(path)]
            assert run_token(["new", *flags]) == ExitCode.SETTINGS
            shown = capsys.readouterr()
            assert said in shown.err
            assert shown.out == ""
            assert not path.exists()


def test_the_settings_say_where_the_tokens_are_and_whether_the_tenant_is(
    tmp_path: Path, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "settings.toml"
    config.write_text(f'token_hashes = "{path}"\n[tenants.vision]\nbench = ["alice"]\n')
    for tenant, name in ("vision", "alice"), ("gone", "bob"):
        flags = ["--config", str(config), "--tenant", tenant, "--name", name]
        assert run_token(["new", *flags]) == 0
        warned = "warning: the settings have no tenant gone" in capsys.readouterr().err
        assert warned == (tenant == "gone")
    assert run_token(["list", "--config", str(config)]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[:3] for line in lines] == [
        ["gone", "bob", "of"], ["vision", "alice", "bench"],
    ]  # fmt: skip
    assert lines[0].endswith("no such tenant")


def test_without_a_file_the_command_says_how_to_name_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_token(["list"]) == ExitCode.SETTINGS
    said = "token_hashes: expected a file, found none; set token_hashes, or give --file"
    assert said in capsys.readouterr().err


# --- What is taken for a token --------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> tuple[TenantsGuard, list[str]]:
    """A guard that knows every kind of token, and one of each."""
    folder = tmp_path_factory.mktemp("g")
    with issuers.Issuer() as issuer:
        for name, algorithm in ("two", "PS256"), ("three", "ES256"), ("four", "EdDSA"):
            issuer.add(name, algorithm)
        settings = ServerSettings(
            tenants={"vision": Tenant(claims=("*",), users=(US,))},
            oidc_issuer="https://ci.example",
            oidc_audience=issuers.AUDIENCE,
            oidc_keys=str(issuers.write_keys(issuer, folder / "keys")),
        )
        jobs = [issuer.token(name, iss="https://ci.example") for name in issuer.keys]
    text, token = tokens.new("vision", "alice", None, 600)
    tokens.append(folder / "tokens", token)
    users = LocalUsers()
    guard = TenantsGuard(
        Tenants(settings.tenants),
        token_file=TokenFile(folder / "tokens"),
        issuer=Issuer(settings, Log()),
        users=users,
    )
    good = [text, users.credential(US), *jobs]
    for each in good:
        assert guard.identify_by(f"Bearer {each}").tenant == "vision"
    return guard, good


OTHERS = st.sampled_from("AZaz09-_.=/ ") | st.characters(max_codepoint=255)


@given(data=st.data())
def test_a_token_that_differs_from_a_good_one_by_a_character_is_refused(
    guarded: tuple[TenantsGuard, list[str]], data: st.DataObject
) -> None:
    guard, good = guarded
    text = data.draw(st.sampled_from(good))
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(OTHERS)
    kept = data.draw(st.sampled_from([at, at + 1]))  # put before the character, or in its place
    changed = text[:at] + other + text[kept:]
    assume(changed.strip() != text)
    with pytest.raises(UnauthenticatedError):
        guard.identify_by(f"Bearer {changed}")


@settings(max_examples=30)
@given(text=st.text(max_size=300))
def test_no_text_is_taken_for_a_credential(
    guarded: tuple[TenantsGuard, list[str]], text: str
) -> None:
    guard, _ = guarded
    for prefix in "", "Bearer ", "Bearer npc_", "Bearer npl_", "Bearer a.b.":
        with pytest.raises(UnauthenticatedError):
            guard.identify_by(prefix + text)


def test_parts_of_good_tokens_make_no_other_one(guarded: tuple[TenantsGuard, list[str]]) -> None:
    guard, good = guarded
    jobs = [each.split(".") for each in good if each.count(".") == 2]
    for parts in itertools.product(*zip(*jobs, strict=True)):
        if list(parts) not in jobs:
            with pytest.raises(UnauthenticatedError):
                guard.identify_by(f"Bearer {'.'.join(parts)}")


def test_what_was_verified_is_kept_until_its_end(
    guarded: tuple[TenantsGuard, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    guard, good = guarded
    identities = [guard.identify_by(f"Bearer {each}") for each in good]
    assert all(
        guard.identify_by(f"Bearer {each}") is identities[at] for at, each in enumerate(good)
    )
    later = time.time() + 700
    monkeypatch.setattr(tenants_guard, "time", SimpleNamespace(time=lambda: later))
    for identity in identities:
        with pytest.raises(CredentialExpiredError):
            guard.check(identity)
    for text in good[:2]:  # of the others PyJWT has a clock of its own
        with pytest.raises(CredentialExpiredError):
            guard.identify_by(f"Bearer {text}")


def test_no_more_is_kept_than_there_is_room_for(
    guarded: tuple[TenantsGuard, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    guard, _ = guarded
    monkeypatch.setattr(tenants_guard, "_KEPT", 3)
    users = guard._users
    assert users is not None
    for _ in range(10):
        guard.identify_by(f"Bearer {users.credential(US)}")
    assert len(guard._known) == 3


def test_whom_a_certificate_names_is_found_once_until_something_changes_or_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tenants = Tenants({"vision": Tenant(certificates=("*.vision.lab",))})
    certificate: Any = SimpleNamespace(of=lambda *_: shown)
    shown = Certificate(("erin.vision.lab",), time.time() + 100)
    guard, connection = TenantsGuard(tenants, certificates=certificate), cast("Any", None)
    first = guard.identify("peer", {}, connection)
    assert guard.identify("another", {}, connection) is first
    tenants.replace({"speech": Tenant(certificates=("erin.*",))})
    guard.forget()
    assert guard.identify("peer", {}, connection).tenant == "speech"
    later = time.time() + 200
    monkeypatch.setattr(tenants_guard, "time", SimpleNamespace(time=lambda: later))
    with pytest.raises(CredentialExpiredError):
        guard.identify("peer", {}, connection)


@pytest.mark.parametrize(
    ("pattern", "name", "belongs"),
    [
        ("*.vision.lab", "erin.vision.lab", True),
        ("*.vision.lab", "erin@mail.vision.lab", False),
        ("*.vision.lab", "spiffe://elsewhere/x.vision.lab", False),
        ("*", "spiffe://elsewhere/x", False),
        ("*@vision.lab", "erin@vision.lab", True),
        ("spiffe://lab/*", "spiffe://lab/erin", True),
    ],
)
def test_a_pattern_of_host_names_matches_nothing_else(
    pattern: str, name: str, belongs: bool
) -> None:
    tenants = Tenants({"vision": Tenant(certificates=(pattern,))})
    if belongs:
        assert belonging.of_certificate(tenants, [name]) == ("vision", name)
        return
    with pytest.raises(TenantUnknownError):
        belonging.of_certificate(tenants, [name])
