"""A server of sessions in this process, and who asks it."""

from collections.abc import Iterator

import pytest
from tests.server.fakes import until
from tests.server.serving import Served, serving
from tests.server.sessions.raw import RawSessions, sessions


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(memory_limit=1 << 26, handle_memory=1 << 21) as served:
        yield served
        served.digests._limit = 0
        until(lambda: not served.handle_bytes, "nothing is held")


@pytest.fixture
def client(served: Served) -> Iterator[RawSessions]:
    with sessions(served.target) as client:
        client.open()
        yield client
