"""Hypothesis for the client: no deadlines, since tests do not judge time. Its second sender."""

from __future__ import annotations

import pytest
from hypothesis import settings
from tests.conftest import ASYNCIO, DEVICES

settings.register_profile("npucall", deadline=None)
settings.load_profile("npucall")


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The client of all tests is also one for asyncio here."""
    definitions = metafunc._arg2fixturedefs.get("client", ())
    if definitions and definitions[-1].scope == "session":
        devices = [*DEVICES, ASYNCIO] if "server" in DEVICES else DEVICES
        each = pytest.mark.parametrize("client", devices, indirect=True, scope="session")
        metafunc.definition.add_marker(each)
