"""Hypothesis for the client: no deadlines, since tests do not judge time. Its two senders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

import npucall_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_client import Client

settings.register_profile("npucall", deadline=None)
settings.load_profile("npucall")


@pytest.fixture
def client(request: pytest.FixtureRequest, client: Client, sender: str) -> Iterator[Client]:
    """The client of all tests, and one for asyncio."""
    device = request.node.callspec.params["client"]
    if sender == "threads":
        yield client
    elif device == "npu":
        pytest.skip("a client for asyncio is tried on the CPU")
    else:
        target = request.getfixturevalue("npucall_server") if device == "server" else "local:"
        with npucall_client.connect(target) as connected:
            yield connected
