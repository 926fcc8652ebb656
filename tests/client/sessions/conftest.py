"""``connected``: the same tests on ``local:``, on a server, and on one with a simulated NPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.conftest import HAS_SERVER

import npucall_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_client import Client, Session


@pytest.fixture(params=["local", "server", "npu"] if HAS_SERVER else ["local"])
def connected(request: pytest.FixtureRequest) -> Iterator[Client]:
    target = "local:"
    if request.param == "server":
        target = request.getfixturevalue("npucall_server")
    if request.param == "npu":
        target = request.getfixturevalue("npu_server").target
    with npucall_client.connect(target) as client:
        yield client


@pytest.fixture
def session(connected: Client) -> Iterator[Session]:
    with connected.session() as session:
        yield session
