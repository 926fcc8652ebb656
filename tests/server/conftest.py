"""The server's tests: none is told anything by the environment, none judges time."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from hypothesis import settings

from npucall_server.settings.server import ServerSettings

from .tenant_server import TenantServer

_VARIABLES = {f"NPUCALL_{name.upper()}" for name in ServerSettings.model_fields}
settings.register_profile("npucall", deadline=None)
settings.load_profile("npucall")


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _VARIABLES & os.environ.keys():
        monkeypatch.delenv(name)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(32) as threads:
        yield threads


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantServer]:
    """A server with tenants, for the tests of a file."""
    from .tenant_server import tenant_server

    with tenant_server(tmp_path_factory.mktemp("t")) as started:
        yield started


@pytest.fixture
def channel(server: TenantServer) -> Iterator[grpc.Channel]:
    """A connection of its own to that server."""
    with server.channel() as channel:
        yield channel
