"""Hypothesis for the client: no deadlines, since tests do not judge time. One client for tests."""

from collections.abc import Iterator

import pytest
from hypothesis import settings
from tests.client import fake_frames
from tests.client.fake_server import FakeServer
from tests.conftest import ASYNCIO, DEVICES, HAS_SERVER

import npucall_client
from npucall_client import Client, Session
from npucall_client.sending import attempts

settings.register_profile("npucall", deadline=None)
settings.load_profile("npucall")

ONE = pytest.param("server" if HAS_SERVER else "local", id=pytest.HIDDEN_PARAM)
NPU = pytest.param("npu", marks=pytest.mark.more)
_CLIENTS = ["local", "server", ASYNCIO] if HAS_SERVER else DEVICES


def _each(clients: list[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("client", clients, indirect=True, scope="session")


EVERY_CLIENT = _each(_CLIENTS)
"""For tests of what may differ between clients: the fixture ``client`` is each of them."""
EVERY_DEVICE = _each([*_CLIENTS, *(device for device in DEVICES if device not in _CLIENTS)])
"""For tests of what may differ between devices too."""


@pytest.fixture(scope="session")
def local() -> Iterator[Client]:
    """A client that computes in this process."""
    with npucall_client.connect("local:") as client:
        yield client


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The client of all other tests here is one: over a socket, where a server is installed."""
    definitions = metafunc._arg2fixturedefs.get("client", ())
    marks = metafunc.definition.iter_markers("parametrize")
    if (
        definitions
        and definitions[-1].scope == "session"
        and not any("client" in mark.args for mark in marks)
    ):
        one = pytest.mark.parametrize("client", [ONE], indirect=True, scope="session")
        metafunc.definition.add_marker(one)


@pytest.fixture(params=["local", *(["server", NPU] if HAS_SERVER else [])])
def connected(request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client of its own for a test of sessions: of each of the two that hold tensors."""
    target = "local:"
    if request.param == "server":
        target = request.getfixturevalue("npucall_server")
    elif request.param == "npu":
        target = request.getfixturevalue("npu_server").target
    with npucall_client.connect(target) as client:
        yield client


@pytest.fixture
def session(connected: Client) -> Iterator[Session]:
    with connected.session() as session:
        yield session


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture(params=[pytest.param("grpc", id=pytest.HIDDEN_PARAM), "frames"])
def carrier(request: pytest.FixtureRequest, server: FakeServer) -> Iterator[str]:
    """Each way in which calls come to the fake server."""
    if request.param == "grpc":
        yield request.param
        return
    with fake_frames.listening(server):
        yield request.param


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are sent again at once, as often as their timeout allows."""
    monkeypatch.setattr(attempts, "PAUSES", (0.0,) * 4)
