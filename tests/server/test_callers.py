"""Who a caller is whom the server does not know."""

from __future__ import annotations

import pytest

from npucall_server.access.identity import anybody

PERSONS = {
    "ipv4:127.0.0.1:40312": "ipv4:127.0.0.1",
    "ipv6:%5B::1%5D:40312": "ipv6:%5B::1%5D",
    "unix:": "unix:",
    "unix:/run/npucall.sock": "unix:/run/npucall.sock",
    "": "",
}


@pytest.mark.parametrize(("peer", "person"), PERSONS.items())
def test_anybody_is_known_by_the_address_without_the_port_and_holds_as_a_connection(
    peer: str, person: str
) -> None:
    assert anybody(peer).person == person
    assert anybody(peer).owner == peer
