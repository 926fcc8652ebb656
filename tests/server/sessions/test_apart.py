"""Two tenants on one server, and one client over a restart: what each sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.server.fakes import until
from tests.server.sessions.raw import DATA, DIGEST, MISSING, A, B, RawSessions, refused
from tests.server.tenant_server import TenantServer, bearer, tenant_server

from npucall.v1 import session_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantServer]:
    with tenant_server(tmp_path_factory.mktemp("l")) as server:
        yield server


def by(server: TenantServer, name: str, tenant: str = "vision") -> RawSessions:
    """Somebody with a token and a session."""
    client = RawSessions(server.channel(), *bearer(server.token(name, tenant)))
    client.open()
    return client


def told(act: Callable[[], object]) -> tuple[str, str]:
    error = refused(act)
    return error.reason, str(error)


def test_nobody_else_uses_a_session_and_all_are_told_alike(server: TenantServer) -> None:
    ann = by(server, "ann")
    ann.put(A)
    never = ann.session[:-32] + "0" * 32
    for other in by(server, "bob"), by(server, "ann", "speech"):
        answers = set()
        for other.session in (ann.session, never):
            answers |= {told(other.renew), told(lambda other=other: other.download(A, 1))}
            other.close()  # of nobody else's
        ((reason, _),) = answers
        assert reason == "SESSION_UNKNOWN"
        other.close_all()
    assert ann.download(A, len(DATA)) == DATA
    ann.close_all()


def test_the_same_person_uses_it_however_it_is_known(server: TenantServer) -> None:
    ann, again = by(server, "ann"), by(server, "ann")
    ann.put(A)
    again.session = ann.session
    assert again.download(A, len(DATA)) == DATA
    again.close_all()
    again.session = ann.session
    again.close()
    assert told(ann.renew)[0] == "SESSION_UNKNOWN"


def test_digests_are_of_one_tenant(server: TenantServer) -> None:
    ann, bob, cid = by(server, "ann"), by(server, "bob"), by(server, "cid", "speech")
    ann.put(A, digest=DIGEST)
    entry = pb.UploadEntry(handle=B, length=len(DATA), digest=DIGEST)
    assert bob.missing(DIGEST) == []
    assert bob.upload((entry, b"")) == [True]
    assert bob.download(B, len(DATA)) == DATA
    assert cid.missing(DIGEST, MISSING) == [DIGEST, MISSING]
    never = pb.UploadEntry(handle=B, length=len(DATA), digest=MISSING)
    answers = {
        told(lambda each=each: cid.upload((each, b"")))  # type: ignore[misc]
        for each in (entry, never)
    }
    ((reason, _),) = answers
    assert reason == "MISSING"
    for client in ann, bob, cid:
        client.close_all()


def test_nothing_is_done_for_who_is_not_known(server: TenantServer) -> None:
    nobody = RawSessions(server.channel())
    acts: list[Callable[[], object]] = [
        nobody.open, nobody.renew, nobody.close, nobody.release, nobody.missing,
        lambda: nobody.put(A), lambda: nobody.download(A, 1),
    ]  # fmt: skip
    assert {told(act)[0] for act in acts} == {"CREDENTIAL_MISSING"}


def test_sessions_of_a_revoked_credential_end(server: TenantServer) -> None:
    token = server.token("eve")
    eve = RawSessions(server.channel(), *bearer(token))
    eve.open()
    eve.put(A)
    held = server.server.parts.core.sessions.memory.budget
    assert held.held == len(DATA)
    server.revoke(token)
    until(lambda: not held.held, "all is freed")
