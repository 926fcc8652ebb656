"""Hypothesis for the client: no deadlines, since tests do not judge time. One client for tests."""

from __future__ import annotations

import pytest
from hypothesis import settings
from tests.conftest import ASYNCIO, DEVICES, HAS_SERVER

settings.register_profile("npucall", deadline=None)
settings.load_profile("npucall")

ONE = pytest.param("server" if HAS_SERVER else "local", id=pytest.HIDDEN_PARAM)
_ALL = [*DEVICES, ASYNCIO] if "server" in DEVICES else DEVICES
EVERYWHERE = pytest.mark.parametrize("client", _ALL, indirect=True, scope="session")
"""For tests of what may differ between clients: the fixture ``client`` is each of them."""


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The client of all other tests here is one: over a socket, where a server is installed."""
    definitions = metafunc._arg2fixturedefs.get("client", ())
    marks = metafunc.definition.iter_markers("parametrize")
    if definitions and definitions[-1].scope == "session" and EVERYWHERE.mark not in marks:
        each = pytest.mark.parametrize("client", [ONE], indirect=True, scope="session")
        metafunc.definition.add_marker(each)
