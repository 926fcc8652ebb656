"""Which proxy counts for which target, and what is said of it."""

from typing import Any

import pytest
from tests.rows import each

from npucall_client.sending.credentials import credential_of
from npucall_client.sending.proxy import way_to
from npucall_client.settings import ClientSettings

TARGET = "npu1.lab:50051"
VARIABLES = "grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy"


@pytest.fixture(autouse=True)
def _no_proxies_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (*VARIABLES, "NPUCALL_PROXY", "NPUCALL_SERVER_NAME"):
        monkeypatch.delenv(variable, raising=False)


def way(target: str = TARGET, **given: str) -> tuple[str, dict[str, str | int]]:
    """To whom a channel connects, and with what."""
    found = way_to(ClientSettings(target=target, **given))  # type: ignore[arg-type]
    return found.target, dict(found.options)


STRAIGHT = {"grpc.enable_http_proxy": 0}
PROXY = "http://login.lab:3128"


@each(
    ("target", "given", "server", "options"),
    [
        (TARGET, {}, TARGET, {}),
        (
            TARGET, {"proxy": PROXY}, "login.lab:3128",
            {"grpc.default_authority": TARGET, "grpc.http_connect_server": TARGET},
        ),
        (
            TARGET, {"proxy": PROXY, "server_name": "npu.lab"}, "login.lab:3128",
            {"grpc.default_authority": "npu.lab", "grpc.http_connect_server": TARGET},
        ),
        (
            "127.0.0.1:7", {"server_name": "npu.lab"}, "127.0.0.1:7",
            {"grpc.default_authority": "npu.lab"},
        ),
        (  # one that is set is for its own machine too, but not for a socket
            "127.0.0.1:7", {"proxy": PROXY}, "login.lab:3128",
            {"grpc.default_authority": "127.0.0.1:7", "grpc.http_connect_server": "127.0.0.1:7"},
        ),
        ("unix:/run/x", {"proxy": PROXY}, "unix:/run/x", {}),
    ],
)  # fmt: skip
def test_a_proxy_is_asked_for_the_target_whose_name_is_checked(
    target: str, given: Any, server: str, options: dict[str, str]
) -> None:
    assert way(target, **given) == (server, {**STRAIGHT, **options})


@each(
    ("url", "address"),
    [
        ("http://login.lab:3128", "login.lab:3128"),
        ("http://login.lab:3128/", "login.lab:3128"),
        ("HTTP://login.lab", "login.lab:80"),
        ("http://10.0.0.1:8080", "10.0.0.1:8080"),
        ("http://[2001:db8::1]:3128", "[2001:db8::1]:3128"),
    ],
)
def test_a_proxy_is_a_host_and_its_port(url: str, address: str) -> None:
    assert way(proxy=url)[0] == address


def test_a_login_is_sent_to_the_proxy_as_it_was_before_it_was_quoted_and_not_shown() -> None:
    url = "http://anna:a%40b@login.lab:3128"
    assert way(proxy=url)[1]["grpc.http_connect_headers"] == (
        "Proxy-Authorization:Basic YW5uYTphQGI="
    )
    assert "a%40b" not in repr(ClientSettings(proxy=url))


@each(
    ("url", "found"),
    [
        ("https://anna:secret@login.lab:3128", "https://..."),
        ("socks5://anna:secret@login.lab:1080", "socks5://..."),
        ("login.lab:3128", "something else"),
        ("anna:secret@login.lab:3128", "something else"),
        ("http://anna:secret@login.lab:port", "http://..."),
        ("http://anna:secret@", "http://..."),
        ("http://", "http://..."),
    ],
)
def test_what_is_no_proxy_is_refused_without_a_word_of_passwords(url: str, found: str) -> None:
    with pytest.raises(ValueError, match="proxy: expected http://HOST:PORT") as raised:
        way(proxy=url)
    assert f"found {found}; set proxy (NPUCALL_PROXY)" in str(raised.value)
    assert "secret" not in str(raised.value)


def test_of_several_variables_the_first_counts_as_for_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(variable, f"http://{variable}.lab:3128")
        assert way()[0] == f"{variable}.lab:3128"
    monkeypatch.setenv("grpc_proxy", "")
    assert way()[0] == TARGET


@each(
    ("target", "excepted"),
    [
        (TARGET, "npu1.lab"),
        (TARGET, "elsewhere, .LAB"),
        ("dns:///npu1.lab:50051", "lab"),
        ("10.1.2.3:50051", "10.0.0.0/8"),
        ("10.1.2.3:50051", "10.1.2.3"),
        ("[2001:db8::7]:50051", "2001:db8::/32"),
    ],
)
def test_who_is_named_by_no_proxy_is_reached_without_one(
    monkeypatch: pytest.MonkeyPatch, target: str, excepted: str
) -> None:
    monkeypatch.delenv("no_grpc_proxy", raising=False)
    monkeypatch.setenv("https_proxy", PROXY)
    monkeypatch.setenv("no_proxy", excepted)
    assert way(target)[0] == target
    monkeypatch.setenv("no_grpc_proxy", "elsewhere")
    assert way(target)[0] == "login.lab:3128"


@each("target", ["127.0.0.1:1", "localhost:1", "[::1]:1", "unix:/run/x"])
def test_no_proxy_of_the_environment_is_for_here(
    monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.setenv("grpc_proxy", "http://login.lab:3128")
    assert way(target)[0] == target


def test_a_variable_of_no_http_proxy_is_told_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "https://anna:secret@login.lab:3128")
    assert way()[0] == TARGET
    assert way_to(ClientSettings(target=TARGET)).told == (
        ", without a proxy, since https_proxy in the environment is no HTTP proxy"
    )


def test_a_token_without_tls_does_not_travel_to_a_proxy_for_everybody_to_read() -> None:
    settings = ClientSettings(
        target="127.0.0.1:50051", token="secret", proxy="http://anna:hidden@login.lab:3128"
    )
    with pytest.raises(ValueError, match=r"expected TLS to .* proxy at login.lab:3128") as raised:
        credential_of(settings)
    assert not any(word in str(raised.value) for word in ("secret", "hidden"))
