"""Whom a call counts for."""

from __future__ import annotations

import pytest

from npucall_server.callers import owner_of

from .scripted import ScriptedCaller

OWNERS = {
    "ipv4:127.0.0.1:40312": "ipv4:127.0.0.1",
    "ipv6:%5B::1%5D:40312": "ipv6:%5B::1%5D",
    "unix:": "unix:",
    "unix:/run/npucall.sock": "unix:/run/npucall.sock",
    "": "",
}


@pytest.mark.parametrize(("peer", "owner"), OWNERS.items())
def test_the_owner_of_a_call_is_the_address_it_came_from_without_the_port(
    peer: str, owner: str
) -> None:
    assert owner_of(ScriptedCaller(peer=peer)) == owner
