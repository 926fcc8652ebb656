"""Which addresses a server may have, and what each of them needs."""

from __future__ import annotations

from typing import Any

import pytest

from npucall_server.addresses import Address, Security, parse
from npucall_server.settings import ServerSettings

Given = dict[str, Any]
PLAIN, TLS, MTLS = Security.PLAIN, Security.TLS, Security.MTLS
CERTIFICATE: Given = {"tls_certificate": "server.pem", "tls_key": "server.key"}
CLIENTS: Given = {**CERTIFICATE, "tls_client_ca": "ca.pem"}


def test_an_address_says_how_it_is_secured(subtests: pytest.Subtests) -> None:
    for text, address in {
        "127.0.0.1:1": Address("127.0.0.1:1", TLS),
        "[::1]:1": Address("[::1]:1", TLS),
        "unix:/run/x": Address("unix:/run/x", PLAIN),
        "plain:127.0.0.1:1": Address("127.0.0.1:1", PLAIN),
        "tls:[::1]:1": Address("[::1]:1", TLS),
        "mtls:node.lab:1": Address("node.lab:1", MTLS),
        "mtls:unix:/run/x": Address("unix:/run/x", MTLS),
        "::1:50054": Address("::1:50054", TLS),
    }.items():
        with subtests.test(text):
            assert parse(text, TLS) == address


def test_a_prefix_needs_an_address_behind_it(subtests: pytest.Subtests) -> None:
    for text in "tls:", "mtls:50051", "ssl", "plain:unix", "tls:mtls:a":
        with (
            subtests.test(text),
            pytest.raises(ValueError, match="expected HOST:PORT or unix:PATH"),
        ):
            parse(text, PLAIN)


def test_the_files_say_what_an_address_without_prefix_is() -> None:
    for given, usual in (Given(), PLAIN), (CERTIFICATE, TLS), (CLIENTS, MTLS):
        settings = ServerSettings(listen="127.0.0.1:1, unix:/run/x", **given)
        assert settings.listens == (Address("127.0.0.1:1", usual), Address("unix:/run/x", PLAIN))


ALLOWED: list[tuple[str, Given]] = [
    ("127.0.0.1:1", {}),
    ("tls:127.0.0.1:1,plain:127.0.0.1:2", CERTIFICATE),
    ("mtls:0.0.0.0:1", CLIENTS),
    ("0.0.0.0:1", CLIENTS),
    ("0.0.0.0:1,unix:/run/x,plain:127.0.0.1:1", CLIENTS),
    ("tls:0.0.0.0:1", {**CLIENTS, "insecure_bind": True}),
    ("plain:0.0.0.0:1,mtls:0.0.0.0:2", {**CLIENTS, "insecure_bind": True}),
    ("127.0.0.1:1", {"health_listen": "10.0.0.5:8081"}),
]


def test_what_is_encrypted_and_knows_its_callers_may_be_anywhere(
    subtests: pytest.Subtests,
) -> None:
    for listen, given in ALLOWED:
        with subtests.test(listen):
            assert ServerSettings(listen=listen, **given).listen == listen


REFUSED: list[tuple[str, Given, str]] = [
    ("0.0.0.0:1", {}, "listen: expected a loopback address or TLS, found 0.0.0.0:1 without TLS"),
    ("127.0.0.1:1,10.0.0.5:1", {}, "listen: expected a loopback address or TLS, found 10.0.0.5:1 "),
    ("plain:0.0.0.0:1", CLIENTS, "listen: expected a loopback address or TLS, found 0.0.0.0:1 "),
    ("0.0.0.0:1", CERTIFICATE, "listen: expected a way to know the callers of tls:0.0.0.0:1, "),
    ("tls:0.0.0.0:1", CLIENTS, "listen: expected a way to know the callers of tls:0.0.0.0:1, "),
    ("tls:127.0.0.1:1", {}, "listen: expected tls_certificate and tls_key for tls:127.0.0.1:1, "),
    ("mtls:127.0.0.1:1", CERTIFICATE, "listen: expected tls_client_ca for mtls:127.0.0.1:1, "),
    ("127.0.0.1:1", {"tls_key": "x"}, "tls_certificate: expected a file, since tls_key is set, "),
    (
        "127.0.0.1:1",
        {"tls_certificate": "x"},
        "tls_key: expected a file, since tls_certificate is set, ",
    ),
    ("127.0.0.1:1", {"tls_client_ca": "x"}, "tls_certificate: expected a file, since "),
    ("127.0.0.1:1,", {}, "listen: expected HOST:PORT or unix:PATH, found ''"),
    ("127.0.0.1:1", {"health_listen": "here"}, "health_listen: expected HOST:PORT or unix:PATH, "),
    (
        ":1,:2",
        {"listen_host": "127.0.0.1"},
        "listen_host: expected one address in listen, found 2; ",
    ),
]


def test_any_other_address_is_refused_in_a_sentence_that_names_the_setting(
    subtests: pytest.Subtests,
) -> None:
    for listen, given, said in REFUSED:
        with subtests.test(listen, **given), pytest.raises(ValueError) as raised:  # noqa: PT011
            ServerSettings(listen=listen, **given)
        assert f"Value error, {said}" in str(raised.value)


def test_the_host_said_alone_leaves_the_prefix() -> None:
    settings = ServerSettings(listen="mtls::50054", listen_host="10.0.0.5", **CLIENTS)
    assert settings.listens == (Address("10.0.0.5:50054", MTLS),)
