"""npucall_client.settings: what is asked where, and what is refused."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.client.conftest import EVERY_CLIENT
from tests.rows import each

import npucall_client
from npucall.errors import ArgumentError, SettingError
from npucall.operators.kl_div_backward import kl_div_backward
from npucall_client import Client
from npucall_client.base import settings_of
from npucall_client.settings import ClientSettings, Options

ONES = np.ones((2, 3), np.float32)
# Name, default, text of the environment, its value, an argument and its value.
SETTINGS: list[tuple[str, Any, str, Any, Any]] = [
    ("target", "127.0.0.1:50051", "unix:/run/npucall.sock", "unix:/run/npucall.sock", "local:"),
    ("timeout", 60.0, "7.5", 7.5, 1.0),
    ("connect_timeout", 10.0, "2", 2.0, 3.0),
    ("variant", "", "builtin", "builtin", "community"),
    ("soc", "", "Ascend310P3", "Ascend310P3", "Ascend910B1"),
    ("product", "", "Ascend910B", "Ascend910B", "Ascend310P"),
    ("labels", {}, "rack=3, kind=cpu", {"rack": "3", "kind": "cpu"}, {"rack": "4"}),
]


@pytest.fixture(autouse=True)
def _no_settings_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, *_ in SETTINGS:
        monkeypatch.delenv(f"NPUCALL_{name.upper()}", raising=False)


@each(("name", "default", "text", "value", "argument"), SETTINGS)
def test_an_argument_comes_before_the_environment_and_that_before_the_default(
    monkeypatch: pytest.MonkeyPatch, name: str, default: Any, text: str, value: Any, argument: Any
) -> None:
    monkeypatch.delenv(f"NPUCALL_{name.upper()}", raising=False)
    assert getattr(ClientSettings.of(), name) == default
    monkeypatch.setenv(f"NPUCALL_{name.upper()}", "")
    assert getattr(ClientSettings.of(), name) == default
    monkeypatch.setenv(f"NPUCALL_{name.upper()}", text)
    assert getattr(ClientSettings.of(**{name: None}), name) == value
    assert getattr(ClientSettings.of(**{name: argument}), name) == argument
    monkeypatch.delenv(f"NPUCALL_{name.upper()}")


@each(
    ("given", "kind", "said"),
    [
        ({"timeout": "soon"}, SettingError, "timeout"),
        ({"labels": "rack"}, SettingError, "labels"),
        ({"labels": "=3"}, SettingError, "labels"),
        ({"soc": "Ascend1"}, ArgumentError, "soc: expected the name of an Ascend SoC"),
        ({"stream_from": -1}, SettingError, r"stream_from.*NPUCALL_STREAM_FROM"),
        ({"token": ["secret"]}, SettingError, "token"),
        *(
            ({"target": target, **wish}, ValueError, f"{name}: expected none with target {target}")
            for target in ("local:", "127.0.0.1:1")
            for name, wish in {
                "product": {"product": "Ascend910B"}, "labels": {"labels": {"rack": "3"}}
            }.items()
        ),
        ({"target": "127.0.0.1:1", "soc": "Ascend910B1"}, ValueError, "soc: expected none with"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_is_an_error_that_names_the_setting(
    given: dict[str, Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said) as caught:
        npucall_client.connect(**{"target": "local:", **given})
    assert not any(word in str(caught.value) for word in ("pydantic", "secret"))


def test_options_come_before_the_environment_and_know_their_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NPUCALL_SEND_UNREAD", "1")
    monkeypatch.setenv("NPUCALL_STREAM_FROM", "7")
    settings = settings_of(Options(send_unread=False), {"poison": False}, target="local:")
    assert (settings.send_unread, settings.stream_from) == (False, 7)
    with pytest.raises(TypeError, match=r"^stream_fron: no setting .*; did you mean stream_from"):
        Options(stream_fron=0)  # type: ignore[call-arg]
    with pytest.raises(SettingError, match=r"^stream_from: .*greater than or equal to 0, found -1"):
        Options(stream_from=-1)
    with npucall_client.connect("local:", options=Options(poison=False)) as client:
        assert client.server_info().server.device == "local"


def test_target_and_soc_decide_who_computes_by_which_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPUCALL_TARGET", "local:")
    with npucall_client.connect() as client:
        server = client.server_info().server
        assert (server.device, server.soc) == ("local", "Ascend910B1")
    with npucall_client.connect("local:", soc="Ascend310B1") as client:
        assert not client.operator("aclnnKlDivBackward").available
        assert client.server_info().product == "Ascend310B"


NO_TIMEOUTS = [-1, 0, 0.0, math.nan, math.inf, -math.inf, 1e12, 10**400, "5", True, [1], 1j]


def _in_session(use: Callable[[Any, Any], Any], client: Client, timeout: Any) -> None:
    with client.session() as session:
        use(session, timeout)


def _pipelined(client: Client, timeout: Any) -> None:
    with client.pipeline() as pipeline:
        pipeline.submit("aclnnKlDivBackward", ONES, self=ONES, target=ONES, timeout=timeout)


def _by_name(method: str, client: Client, timeout: Any) -> None:
    call = getattr(client, method)
    call("aclnnKlDivBackward", ONES, self=ONES, target=ONES, timeout=timeout)


WAYS: list[Callable[[Client, Any], object]] = [
    lambda _, timeout: npucall_client.connect("local:", timeout=timeout),
    lambda _, it: npucall_client.connect("local:", connect_timeout=it),
    lambda client, timeout: client.options(timeout=timeout),
    partial(_by_name, "run"),
    partial(_by_name, "execute"),
    partial(_by_name, "plan"),
    _pipelined,
    lambda client, it: client.session(lease=it),
    partial(_in_session, lambda session, it: session.put(ONES, timeout=it)),
    partial(_in_session, lambda session, it: session.put(ONES).numpy(timeout=it)),
    partial(_in_session, lambda session, it: session.program(timeout=it)),
    partial(_in_session, lambda session, it: session.options(timeout=it)),
    lambda client, it: client.reserve(it),
]


@EVERY_CLIENT
@each("way", WAYS)
@each("timeout", NO_TIMEOUTS)
def test_a_timeout_that_cannot_be_is_refused_alike_everywhere(
    client: Client, way: Callable[[Client, Any], object], timeout: Any
) -> None:
    with pytest.raises(SettingError) as caught:
        way(client, timeout)
    assert "expected seconds, more than 0, and up to 1000000000, found" in str(caught.value)


@each("text", ["-1", "0", "nan", "inf", "1e12", "soon"])
def test_so_is_one_of_the_environment(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("NPUCALL_TIMEOUT", text)
    with pytest.raises(SettingError, match="timeout: expected seconds, more than 0"):
        npucall_client.connect("local:")


def test_no_wait_at_all_is_one_that_a_reservation_takes() -> None:
    with npucall_client.connect("local:") as client:
        with client.reserve(1.0, wait=0):
            pass
        with pytest.raises(SettingError, match="wait: expected seconds, from 0 up to"):
            client.reserve(1.0, wait=-1)


def test_numbers_of_numpy_are_timeouts_too() -> None:
    with npucall_client.connect("local:", timeout=np.float32(3)) as client:
        client.options(timeout=np.int64(2)).run(kl_div_backward, ONES, self=ONES, target=ONES)


# Environment variables that are none.


def test_an_unknown_variable_warns_once_of_what_was_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npucall_client.settings._warned", set())
    monkeypatch.setenv("NPUCALL_TIMOUT", "5")
    said = r"NPUCALL_TIMOUT .*did you mean NPUCALL_TIMEOUT\?"
    with pytest.warns(UserWarning, match=said) as told:
        npucall_client.connect("local:").close()
    assert told[0].filename == __file__
    npucall_client.connect("local:").close()  # a warning would be an error here


def test_variables_of_other_programs_are_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npucall_client.settings._warned", set())
    for name in (
        "NPUCALL_LISTEN",
        "NPUCALL_DIRECTORY_STORE",
        "NPUCALL_DIRECTORY",
        "NPUCALL_LISTEN_HOST",
        "NPUCALL_SIM_SOC",
        "NPUCALL_SERVICE_HOST",
        "NPUCALL_DIRECTORY_PORT_50050_TCP_ADDR",
        "NPUCALLER",
    ):
        monkeypatch.setenv(name, "1")
    npucall_client.connect("local:").close()


def test_what_is_printed_of_settings_has_no_secret() -> None:
    secrets = {
        "token": "s3cret-1", "token_url_bearer": "s3cret-2", "reservation": "s3cret-3",
        "proxy": "http://me:s3cret-4@proxy.lab:1",
    }  # fmt: skip
    assert "s3cret" not in repr(ClientSettings(**secrets))
