"""A server of sessions in this process, and who asks it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.server.scripted import until
from tests.server.sessions.asking import Asker, asking
from tests.server.streams import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.server.streams import Served


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(memory_limit=1 << 26, handle_memory=1 << 21, session_memory=1 << 20) as served:
        yield served
        served.digests._limit = 0
        until(lambda: not served.sessions.memory.budget.held, "nothing is held")


@pytest.fixture
def asker(served: Served) -> Iterator[Asker]:
    with asking(served.target) as asker:
        asker.open()
        yield asker
        asker.close_all()
