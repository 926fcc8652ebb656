"""``connect`` and npucall_client.settings: what is asked where, and what is refused."""

from __future__ import annotations

import socket
from typing import Any

import pytest

import npucall_client
from npucall.errors import ArgumentError, ServerUnreachableError
from npucall_client.settings import ClientSettings

pytestmark = pytest.mark.usefixtures("sender")

DEFAULTS = {
    "target": "127.0.0.1:50051",
    "timeout": 60.0,
    "connect_timeout": 10.0,
    "variant": "",
    "soc": "",
    "product": "",
    "labels": {},
}
OF_ENVIRONMENT = {
    "target": ("unix:/run/npucall.sock", "unix:/run/npucall.sock"),
    "timeout": ("7.5", 7.5),
    "connect_timeout": ("2", 2.0),
    "variant": ("builtin", "builtin"),
    "poison": ("true", True),
    "soc": ("Ascend310P3", "Ascend310P3"),
    "product": ("Ascend910B", "Ascend910B"),
    "labels": ("rack=3, kind=cpu", {"rack": "3", "kind": "cpu"}),
}


@pytest.fixture(autouse=True)
def _no_settings_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in DEFAULTS:
        monkeypatch.delenv(f"NPUCALL_{name.upper()}", raising=False)


@pytest.fixture
def free_port() -> int:
    """A port at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_setting_that_nobody_gives_has_its_default(name: str) -> None:
    assert getattr(ClientSettings.of(), name) == DEFAULTS[name]


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_environment_comes_before_the_default(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    text, value = OF_ENVIRONMENT[name]
    monkeypatch.setenv(f"NPUCALL_{name.upper()}", text)
    assert getattr(ClientSettings.of(**{name: None}), name) == value


@pytest.mark.parametrize(
    ("name", "value"), [("target", "local:"), ("timeout", 1.0), ("variant", "community")]
)
def test_an_argument_comes_before_the_environment(
    monkeypatch: pytest.MonkeyPatch, name: str, value: Any
) -> None:
    monkeypatch.setenv(f"NPUCALL_{name.upper()}", OF_ENVIRONMENT[name][0])
    assert getattr(ClientSettings.of(**{name: value}), name) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout", 0.0),
        ("timeout", -1.0),
        ("timeout", "soon"),
        ("connect_timeout", 0.0),
        ("labels", "rack"),
        ("labels", "=3"),
    ],
)
def test_a_value_that_cannot_be_is_a_value_error_that_names_the_setting(
    name: str, value: Any
) -> None:
    with pytest.raises(ValueError, match=name):
        npucall_client.connect("local:", **{name: value})


def test_a_bad_value_of_the_environment_is_a_value_error_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NPUCALL_TIMEOUT", "soon")
    with pytest.raises(ValueError, match="timeout"):
        npucall_client.connect("local:")


def test_settings_do_not_change() -> None:
    with pytest.raises(AttributeError):
        ClientSettings.of().timeout = 3  # type: ignore[misc]


def test_the_target_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPUCALL_TARGET", "local:")
    with npucall_client.connect() as client:
        assert client.server_info().server.device == "local"


def test_where_nobody_listens_the_error_says_what_to_do(free_port: int) -> None:
    target = f"127.0.0.1:{free_port}"
    with pytest.raises(ServerUnreachableError) as caught:
        npucall_client.connect(target, connect_timeout=0.3)
    assert str(caught.value) == (
        f"target: expected a server at {target}, found none in 0.3 s; start one with "
        "npucall-server, correct the target (NPUCALL_TARGET), or, if the server uses TLS, name "
        "the authority of its certificate (NPUCALL_CA)"
    )


def test_a_socket_file_that_is_not_there_is_unreachable(tmp_path: Any) -> None:
    with pytest.raises(ServerUnreachableError, match="expected a server at unix:"):
        npucall_client.connect(f"unix:{tmp_path}/none", connect_timeout=0.3)


def test_a_soc_beside_a_server_is_refused_since_the_server_has_its_own(free_port: int) -> None:
    with pytest.raises(ValueError, match="soc: expected none with target 127"):
        npucall_client.connect(f"127.0.0.1:{free_port}", soc="Ascend910B1")


@pytest.mark.parametrize("target", ["local:", "127.0.0.1:1"])
@pytest.mark.parametrize("wish", [{"product": "Ascend910B"}, {"labels": {"rack": "3"}}])
def test_a_wish_beside_one_server_is_refused(target: str, wish: dict[str, Any]) -> None:
    (name,) = wish
    with pytest.raises(ValueError, match=f"{name}: expected none with target {target}"):
        npucall_client.connect(target, **wish)


def test_a_local_client_without_a_soc_stands_for_the_usual_one() -> None:
    with npucall_client.connect("local:") as client:
        assert client.server_info().server.soc == "Ascend910B1"


def test_the_soc_of_a_local_client_decides_its_rules() -> None:
    with npucall_client.connect("local:", soc="Ascend310B1") as client:
        assert not client.operator("aclnnKlDivBackward").available
        assert client.server_info().product == "Ascend310B"


def test_a_soc_that_is_none_is_refused() -> None:
    with pytest.raises(ArgumentError, match="soc: expected the name of an Ascend SoC"):
        npucall_client.connect("local:", soc="Ascend1")
