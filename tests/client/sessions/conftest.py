"""``connected``: the same tests against ``local:`` and against a server over a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.conftest import HAS_SERVER

import npucall_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_client import Client, Session


@pytest.fixture(params=["local", "server"] if HAS_SERVER else ["local"])
def connected(request: pytest.FixtureRequest) -> Iterator[Client]:
    target = request.getfixturevalue("npucall_server") if request.param == "server" else "local:"
    with npucall_client.connect(target) as client:
        yield client


@pytest.fixture
def session(connected: Client) -> Iterator[Session]:
    with connected.session() as session:
        yield session
