"""Which addresses a server may have, and those of directories; what each of them needs."""

from typing import Any

import pytest

from npucall_server.settings.addresses import Address, Security, parse
from npucall_server.settings.server import ServerSettings, read

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


def test_a_directory_has_a_port_and_a_security(subtests: pytest.Subtests) -> None:
    rows: list[tuple[Given, list[str]]] = [
        ({"announce": ""}, []),
        ({"announce": "d.lab"}, ["plain:d.lab:50050"]),
        ({"announce": "d.lab, e.lab:7"}, ["plain:d.lab:50050", "plain:e.lab:7"]),
        ({"announce": "[::1]"}, ["plain:[::1]:50050"]),
        ({"announce": "unix:/run/d"}, ["plain:unix:/run/d"]),
        ({"announce": "tls:d.lab"}, ["tls:d.lab:50050"]),
        ({"announce": "d.lab", "announce_ca": "/ca"}, ["tls:d.lab:50050"]),
        ({"announce": "d.lab", "announce_ca": "/ca", **CERTIFICATE}, ["mtls:d.lab:50050"]),
        (
            {"announce": "d.lab", "announce_ca": "/ca", "announce_token_file": "/t", **CERTIFICATE},
            ["tls:d.lab:50050"],
        ),
        (
            {"announce": "plain:127.0.0.1", "announce_ca": "/ca", "announce_token_file": "/t"},
            ["plain:127.0.0.1:50050"],
        ),
    ]
    for given, expected in rows:
        with subtests.test(expected=expected):
            assert [str(each) for each in ServerSettings(**given).directories] == expected


def test_what_cannot_be_is_said_in_a_sentence(subtests: pytest.Subtests) -> None:
    rows: list[tuple[Given, str]] = [
        ({"announce": "d.lab:0"}, "announce: expected HOST:PORT"),
        ({"announce": "http://d.lab"}, "announce: expected"),
        ({"announce": "mtls:d.lab"}, "announce: expected tls_certificate and tls_key"),
        (
            {"announce": "d.lab", "announce_token_file": "/t"},
            "announce: expected TLS to d.lab:50050, since announce_token_file is set",
        ),
        (
            {"announce": "d.lab", "listen": "0.0.0.0:1", "insecure_bind": True},
            "advertise: expected HOST:PORT, since listen",
        ),
        ({"announce": "d.lab", "listen": "unix:/run/s"}, "advertise: expected HOST:PORT"),
        ({"advertise": "npu1.lab"}, "advertise: expected HOST:PORT"),
        ({"advertise": "0.0.0.0:1"}, "advertise: expected an address that others can reach"),
        ({"labels": "rack"}, "labels: expected NAME=VALUE, found 'rack'"),
        ({"labels": {"Rack": "7"}}, "labels: expected a name"),
        ({"labels": {str(number): "" for number in range(33)}}, "labels: expected at most 32"),
    ]
    for given, said in rows:
        with subtests.test(said):
            with pytest.raises(ValueError, match="expected") as caught:
                ServerSettings(**given)
            name, _, sentence = said.partition(": ")
            assert name in str(caught.value)
            assert sentence in str(caught.value)


def test_a_server_is_known_by_its_first_address_unless_told() -> None:
    rows: list[tuple[Given, list[str], str]] = [
        ({}, ["127.0.0.1:4711"], "127.0.0.1:4711"),
        ({"listen": "unix:/run/s,npu1.lab:1", "insecure_bind": True},
         ["unix:/run/s", "npu1.lab:1"], "npu1.lab:1"),
        ({"advertise": "npu1.lab:7"}, ["0.0.0.0:4711"], "npu1.lab:7"),
    ]  # fmt: skip
    for given, bound, expected in rows:
        assert ServerSettings(**given).advertised(bound) == expected


def test_labels_are_given_one_by_one_or_together(monkeypatch: pytest.MonkeyPatch) -> None:
    apart = read(["--label", "rack=7", "--label", "lab/driver=a b"])
    assert apart.labels == {"rack": "7", "lab/driver": "a b"}
    assert read(["--labels=rack=7,row=2"]).labels == {"rack": "7", "row": "2"}
    assert read(["--label", "expression=a=b"]).labels == {"expression": "a=b"}
    assert read([]).labels == {}
    monkeypatch.setenv("NPUCALL_LABELS", "rack=7, row=2")
    assert read([]).labels == {"rack": "7", "row": "2"}
