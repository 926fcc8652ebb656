"""Two tenants on one server, and one client over a restart: what each sees."""

from __future__ import annotations

import signal
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from tests.server.scripted import until
from tests.server.sessions.asking import Asker, RefusedError, asking
from tests.server.sessions.held import A, B
from tests.server.tenant_server import TenantServer, bearer, tenant_server

from npucall.v1 import session_service_pb2 as pb
from npucall_client.testing import running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = bytes(range(256)) * 100
DIGEST = sha256(DATA).digest()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantServer]:
    with tenant_server(tmp_path_factory.mktemp("s")) as server:
        yield server


def by(server: TenantServer, name: str, tenant: str = "vision") -> Asker:
    """Somebody with a token."""
    return Asker(server.channel(), *bearer(server.token(name, tenant)))


def told(asker: Asker, act: str = "renew") -> tuple[str, str]:
    with pytest.raises(RefusedError) as caught:
        getattr(asker, act)()
    return caught.value.reason, str(caught.value)


def test_nobody_else_uses_a_session_and_all_are_told_alike(server: TenantServer) -> None:
    ann = by(server, "ann")
    ann.open()
    ann.put(A, DATA)
    never = ann.session[:-32] + "0" * 32
    for name, tenant in (("bob", "vision"), ("ann", "speech")):
        other = by(server, name, tenant)
        answers = []
        for other.session in (ann.session, never):
            answers.append(told(other))
            with pytest.raises(RefusedError) as caught:
                other.download(A, 1)
            answers.append((caught.value.reason, str(caught.value)))
            other.close()  # of nobody else's
        assert set(answers) == {answers[0]}
        assert answers[0][0] == "SESSION_UNKNOWN"
    assert ann.download(A, len(DATA)) == DATA
    ann.close()


def test_the_same_person_uses_it_however_it_is_known(server: TenantServer) -> None:
    ann, again = by(server, "ann"), by(server, "ann")
    ann.open()
    ann.put(A, DATA)
    again.session = ann.session
    assert again.download(A, len(DATA)) == DATA
    again.close()
    assert told(ann)[0] == "SESSION_UNKNOWN"


def test_digests_are_of_one_tenant(server: TenantServer) -> None:
    ann, bob, cid = by(server, "ann"), by(server, "bob"), by(server, "cid", "speech")
    for asker in ann, bob, cid:
        asker.open()
    ann.put(A, DATA, digest=DIGEST)
    entry = pb.UploadEntry(handle=B, length=len(DATA), digest=DIGEST)
    assert bob.missing(DIGEST) == []
    assert bob.upload((entry, b"")) == [True]
    assert bob.download(B, len(DATA)) == DATA
    never = b"\0" * 32
    assert cid.missing(DIGEST, never) == [DIGEST, never]
    answers = []
    for digest in DIGEST, never:
        with pytest.raises(RefusedError) as caught:
            cid.upload((pb.UploadEntry(handle=B, length=len(DATA), digest=digest), b""))
        answers.append((caught.value.reason, str(caught.value)))
    assert answers[0] == answers[1]
    assert answers[0][0] == "MISSING"
    for asker in ann, bob, cid:
        asker.close()


@pytest.mark.parametrize("method", ["open", "renew", "close", "release", "missing"])
def test_nothing_is_done_for_who_is_not_known(server: TenantServer, method: str) -> None:
    assert told(Asker(server.channel()), method)[0] == "CREDENTIAL_MISSING"


def test_nothing_is_uploaded_or_downloaded_for_who_is_not_known(server: TenantServer) -> None:
    nobody = Asker(server.channel())
    for act in (lambda: nobody.put(A, DATA), lambda: nobody.download(A, 1)):
        with pytest.raises(RefusedError) as caught:
            act()
        assert caught.value.reason == "CREDENTIAL_MISSING"


def test_sessions_of_a_revoked_credential_end(server: TenantServer) -> None:
    token = server.token("eve")
    eve = Asker(server.channel(), *bearer(token))
    eve.open()
    eve.put(A, DATA)
    held = server.server.parts.core.sessions.memory.budget
    assert held.held == len(DATA)
    server.revoke(token)
    until(lambda: not held.held, "all is freed")


@pytest.mark.more
def test_after_a_restart_everything_is_lost_and_says_which_server_had_it() -> None:
    with running_server() as server:
        with asking(server.target) as asker:
            opened = asker.open()
            asker.put(A, DATA)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
    with running_server() as server, asking(server.target) as asker:
        asker.session = opened.session
        for act in (asker.renew, lambda: asker.download(A, 1), lambda: asker.put(B, DATA)):
            with pytest.raises(RefusedError) as caught:
                act()
            assert caught.value.reason == "HANDLE_LOST"
            assert caught.value.details["instance"] == opened.server.instance
        asker.close()


@pytest.mark.more
def test_another_server_says_that_it_is_the_wrong_one() -> None:
    with running_server() as server, asking(server.target) as asker:
        session = asker.open().session
    with running_server(listen="localhost:0") as other, asking(other.target) as asker:
        asker.session = session
        assert told(asker)[0] == "WRONG_SERVER"
