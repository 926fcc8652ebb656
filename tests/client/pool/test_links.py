"""The links of a client to the members of a pool."""

from __future__ import annotations

from typing import Any, cast

import pytest

from npucall.errors import NoMemberError, Repeat
from npucall_client.pool.links import Links
from npucall_client.pool.members import Member
from npucall_client.pool.picking import Wish
from npucall_client.pool.table import Table
from npucall_client.senders import finished
from npucall_client.senders.threads import THREADS
from npucall_client.settings import ClientSettings


def test_a_member_that_was_picked_before_anybody_knew_it_is_not_called_against_the_wish() -> None:
    """Several threads pick a member that nobody knows; the first one asks it, the others wait."""
    table: Table[Any] = Table(Wish(labels={"kind": "cpu"}))
    table.update([Member("a:1")], complete=True)
    picked = table.take()
    assert picked is not None
    link = picked.link = cast("Any", object())
    links = Links(ClientSettings(target="pool:a:1"), table, THREADS)
    for kind in ("cpu", "npu"):
        told = Member("a:1", instance="1", soc="A", device="cann:0", labels={"kind": kind})
        table.learn(picked, told)
        picked.opened = "1"
        if kind == "cpu":
            assert finished(links.of(picked, 1.0)) is link
            continue
        with pytest.raises(NoMemberError, match="kind=cpu") as raised:
            finished(links.of(picked, 1.0))
        assert raised.value.repeat is Repeat.ELSEWHERE
