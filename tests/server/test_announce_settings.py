"""Settings of a server that announces itself."""

from __future__ import annotations

from typing import Any

import pytest

from npucall_server.settings import ServerSettings, read

TLS = {"tls_certificate": "/c.pem", "tls_key": "/c.key"}


def test_a_directory_has_a_port_and_a_security(subtests: pytest.Subtests) -> None:
    rows: list[tuple[dict[str, Any], list[str]]] = [
        ({"announce": ""}, []),
        ({"announce": "d.lab"}, ["plain:d.lab:50050"]),
        ({"announce": "d.lab, e.lab:7"}, ["plain:d.lab:50050", "plain:e.lab:7"]),
        ({"announce": "[::1]"}, ["plain:[::1]:50050"]),
        ({"announce": "unix:/run/d"}, ["plain:unix:/run/d"]),
        ({"announce": "tls:d.lab"}, ["tls:d.lab:50050"]),
        ({"announce": "d.lab", "announce_ca": "/ca"}, ["tls:d.lab:50050"]),
        ({"announce": "d.lab", "announce_ca": "/ca", **TLS}, ["mtls:d.lab:50050"]),
        (
            {"announce": "d.lab", "announce_ca": "/ca", "announce_token_file": "/t", **TLS},
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
    rows: list[tuple[dict[str, Any], str]] = [
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
    rows: list[tuple[dict[str, Any], list[str], str]] = [
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
