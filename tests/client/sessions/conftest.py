"""``connected``: the same tests against ``local:``, a server over a socket, and a simulated NPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.conftest import HAS_SERVER

import npucall_client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_client import Client, Session


NPU = pytest.param("npu", marks=pytest.mark.more)


@pytest.fixture(params=["local", "server", NPU] if HAS_SERVER else ["local"])
def connected(request: pytest.FixtureRequest) -> Iterator[Client]:
    target = request.getfixturevalue("npucall_server") if request.param == "server" else "local:"
    if request.param == "npu":
        target = request.getfixturevalue("npu_server").target
    with npucall_client.connect(target) as client:
        yield client


@pytest.fixture
def session(connected: Client) -> Iterator[Session]:
    with connected.session() as session:
        yield session
