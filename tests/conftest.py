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
    from npucall_client.testing import ServerProcess

pytest_plugins = ["npucall_client.testing"]

# The client's tests also run where no server is installed.
HAS_SERVER = find_spec("npucall_server") is not None or target_of_environment() is not None


@pytest.fixture(params=["local", "server", "npu"] if HAS_SERVER else ["local"], scope="session")
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client of this process, of a CPU server over a socket, of a server on a simulated NPU."""
    if request.param == "npu":
        from tests.npu import patient_client

        with patient_client(request.getfixturevalue("npu_server").target) as connected:
            yield connected
        return
    target = request.getfixturevalue("npucall_server") if request.param == "server" else "local:"
    with npucall_client.connect(target) as connected:
        yield connected


@pytest.fixture(scope="session")
def npu_server() -> Iterator[ServerProcess]:
    """A server on a simulated NPU, with CANN 9.x and no custom package."""
    from tests.npu import running_npu_server

    with running_npu_server(NPUCALL_SIM_SOC="Ascend910B1") as server:
        yield server


@pytest.fixture(autouse=True)
def _npu_server_lives(request: pytest.FixtureRequest) -> None:
    """Once the NPU's server has ended, tests fail without waiting for it."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is None or callspec.params.get("client") != "npu":
        return
    server: ServerProcess = request.getfixturevalue("npu_server")
    assert server.process.poll() is None, server.log.read_text()[-2000:]
