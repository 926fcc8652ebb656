"""Who calls in frames: by a credential, or as a user of the host; and for how long."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.server.fakes import BlockingDevice, FakeCaller, until
from tests.server.raw import info_of
from tests.server.tenant_server import US, TenantServer

from npucall.wire.status import AUTHORIZATION
from npucall_server.access import local_users
from npucall_server.access.guard import OpenGuard
from npucall_server.access.identity import Identity, KnownBy
from npucall_server.settings.tenants import Role
from npucall_server.shared import unix_sockets

from .peer import ERROR, WELCOME, FramePeer, QuickDevice, connected, framed

if TYPE_CHECKING:
    from tests.server.serving import Served


class NamingGuard(OpenGuard):
    """The credential is who it is: TENANT/NAME."""

    def identify(self, peer: str, metadata: Any, connection: Any) -> Identity:
        tenant, _, name = str(metadata[AUTHORIZATION]).partition("/")
        return Identity(tenant, name, Role.BENCH, KnownBy.TOKEN)


def path_of(served: Served) -> str:
    return str(served.settings.frames_socket)


def called(peer: FramePeer) -> str:
    """The reason of a call; OK."""
    peer.execute()
    frame = peer.receive()
    assert frame.call, frame
    return info_of(frame.message).reason if frame.kind == ERROR else "OK"


def connection_of(served: Served, name: str) -> Any:
    """The server's end of somebody's only connection."""
    found = served.parts.methods.frames._connections
    (connection,) = [each for each in found if each.place and each.identity.name == name]
    return connection


def test_a_token_and_the_user_of_the_process_are_known(server: TenantServer) -> None:
    names = {f"Bearer {server.token('alice')}": "alice", "": local_users.user(US, 0).name}
    for authorization, name in names.items():
        with FramePeer(path_of(server)) as peer:
            assert peer.enter(authorization).kind == WELCOME
            peer.execute(1, request_id=f"of {name}")
            assert peer.receive().response
    for name in names.values():
        until(lambda name=name: f"of {name}" in server.log.getvalue(), "its line")
        (line,) = [each for each in server.lines() if each.get("request_id") == f"of {name}"]
        assert (line["tenant"], line["caller"]) == ("vision", name)


def test_a_credential_that_is_not_good_is_refused_with_its_fault(server: TenantServer) -> None:
    with FramePeer(path_of(server)) as peer:
        frame = peer.enter("Bearer npc_unknown")
        info = info_of(frame.message)
        assert (frame.call, info.reason) == (0, "CREDENTIAL_INVALID")
        assert info.metadata["fault"]
        assert peer.is_closed()


def test_a_user_of_no_tenant_is_told_what_is_missing(
    server: TenantServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix_sockets, "who_connected", lambda _: (1, 12345))
    with FramePeer(path_of(server)) as peer:
        assert peer.enter().reason == "CREDENTIAL_MISSING"
        assert peer.is_closed()


def test_without_tenants_other_users_are_closed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with framed(tmp_path, shared_memory_users=(4242,)) as served:
        for user, gets_in in ((12345, False), (4242, True)):
            monkeypatch.setattr(unix_sockets, "who_connected", lambda _, user=user: (1, user))
            with FramePeer(path_of(served)) as peer:
                if gets_in:
                    assert peer.enter().kind == WELCOME
                else:
                    assert peer.is_closed()


def test_a_revoked_token_ends_calls_of_its_connection(server: TenantServer) -> None:
    token, other = server.token("dave"), server.token("dave")
    with FramePeer(path_of(server)) as peer:
        peer.enter(f"Bearer {token}")
        assert called(peer) == "OK"
        server.revoke(token)
        until(lambda: called(peer) == "CREDENTIAL_INVALID", "the server knows")
        peer.prove(f"Bearer {other}")
        assert called(peer) == "OK"
        peer.prove(f"Bearer {server.token('eve')}")
        frame = peer.receive()
        assert (frame.call, frame.reason) == (0, "CREDENTIAL_INVALID")
        assert peer.is_closed()


def test_a_token_ends_in_mid_connection_and_is_renewed(server: TenantServer) -> None:
    with FramePeer(path_of(server)) as peer:
        peer.enter(f"Bearer {server.token('fred')}")
        assert called(peer) == "OK"
        connection = connection_of(server, "fred")
        connection.identity = replace(connection.identity, expires=1.0)
        until(lambda: called(peer) == "CREDENTIAL_EXPIRED", "the server looks")
        peer.prove(f"Bearer {server.token('fred')}")
        assert called(peer) == "OK"


def test_a_user_stays_known_while_it_is_of_the_tenant(
    server: TenantServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_users, "SECONDS", 0.2)
    with FramePeer(path_of(server)) as peer:
        peer.enter()
        connection = connection_of(server, local_users.user(US, 0).name)
        until(lambda: connection.is_doubted, "its credential has ended")
        assert called(peer) == "OK"
        assert connection.identity.expires > time.time()


def test_calls_count_for_the_person_on_every_connection(tmp_path: Path) -> None:
    device = BlockingDevice()
    tenants = {"lab": {"calls": 1}, "other": {}}
    with (
        framed(tmp_path, device, NamingGuard(), tenants=tenants) as served,
        FramePeer(path_of(served)) as first,
        FramePeer(path_of(served)) as second,
        FramePeer(path_of(served)) as third,
    ):
        for peer, who in ((first, "lab/a"), (second, "lab/b"), (third, "other/c")):
            assert peer.enter(who).kind == WELCOME
        first.execute()
        until(lambda: device.running, "it runs")
        assert called(second) == "QUOTA"
        device.let_all_go()
        assert called(third) == "OK"
        assert first.receive().response


def test_calls_of_others_wait_while_the_device_is_reserved(tmp_path: Path) -> None:
    with framed(tmp_path, QuickDevice(), NamingGuard()) as served:
        key = served.gate.reserve(FakeCaller(who="lab/a"), 60.0, 0.0).key
        with FramePeer(path_of(served)) as holder, FramePeer(path_of(served)) as other:
            holder.enter("lab/a")
            other.enter("lab/b")
            assert called(other) == "RESERVED"
            holder.execute(1, reservation=key)
            assert holder.receive().response


def test_a_credential_is_not_needed_where_nobody_has_to_show_one(tmp_path: Path) -> None:
    with framed(tmp_path, QuickDevice()) as served, connected(served) as peer:
        peer.prove("Bearer of a client that calls other servers too")
        assert called(peer) == "OK"
