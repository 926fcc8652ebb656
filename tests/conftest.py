"""Fixtures of all tests: ``client`` runs a test on every device that is there."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

import npucall_client
from npucall_client.settings import target_of_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_client import Client

pytest_plugins = ["npucall_client.testing"]

# The client's tests also run where no server is installed.
HAS_SERVER = find_spec("npucall_server") is not None or target_of_environment() is not None


@pytest.fixture(params=["local", "server"] if HAS_SERVER else ["local"], scope="session")
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client of this process, then one of a real server over a real socket."""
    target = "local:"
    if request.param == "server":
        target = request.getfixturevalue("npucall_server")
    with npucall_client.connect(target) as connected:
        yield connected
