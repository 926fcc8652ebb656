"""What a target may be, a pool's too, and what is said of one that is none."""

from pathlib import Path
from typing import Any

import pytest
from tests import on_a_loop
from tests.rows import each

import npucall_client
from npucall.errors import ArgumentError, SettingError
from npucall.membership import check_address
from npucall_client.pool.members import Member
from npucall_client.pool.sources import source_of
from npucall_client.settings import ClientSettings
from npucall_client.targets import PoolTarget, parse

A_PORT = "the port is a number from 1 to 65535"


@each("connect", [npucall_client.connect, on_a_loop.connect])
@each(
    ("target", "said"),
    [
        ("local", "did you mean local:?"),
        ("LOCAL:", "did you mean local:?"),
        ("local:Ascend910B1", "did you mean local:?"),
        ("pool", "did you mean pool:HOST:PORT,HOST:PORT?"),
        ("unix", "did you mean unix:PATH?"),
        ("unix:", "did you mean unix:PATH?"),
        ("/run/npucall.sock", "the socket of a server is unix:/run/npucall.sock"),
        ("http://npu-host:50051", "a target has no http://; write npu-host:50051 ("),
        ("http://npu-host:50051/v1", "a target has no http://; write npu-host:50051 ("),
        ("grpc://npu-host", "a target has no grpc://; write npu-host:50051 ("),
        ("https://npu-host", "write npu-host:50051 and set tls (NPUCALL_TLS=true)"),
        ("http://ann:secret@npu-host", "found 'http://npu-host'"),
        *((f"npu-host:{port}", A_PORT) for port in ("70000", "0", "grpc", "", "-1")),
        (":50051", "it names no host"),
        ("npu host", "'npu host' is no name or IP address of a host"),
        ("::1", "an IPv6 address has brackets, such as [::1]:50051"),
        ("", "write HOST:PORT of a server"),
        ("pool:npu-host", "expected HOST:PORT"),
    ],
)
def test_a_target_that_is_none_is_refused_at_once_and_the_error_says_what_to_write(
    connect: Any, target: str, said: str
) -> None:
    with pytest.raises(SettingError) as caught:
        connect(target)
    assert said in str(caught.value)
    assert "NPUCALL_TARGET" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert isinstance(caught.value, ArgumentError)
    assert isinstance(caught.value, ValueError)


@each(
    ("target", "meant"),
    [
        ("npu-host", "npu-host:50051"),
        ("npu-host.lab", "npu-host.lab:50051"),
        ("10.0.0.7", "10.0.0.7:50051"),
        ("[::1]", "[::1]:50051"),
        ("[::1]:5", "[::1]:5"),
        ("npu-host:7", "npu-host:7"),
        ("local:7", "local:7"),  # a host of that name
        ("0.0.0.0:7", "0.0.0.0:7"),
        ("unix:/run/npucall.sock", "unix:/run/npucall.sock"),
        ("unix:///run/npucall.sock", "unix:///run/npucall.sock"),
        ("dns:///npu-host:7", "dns:///npu-host:7"),
        ("local:", "local:"),
        ("pool:a:1,b:2", "pool:a:1,b:2"),
    ],
)
def test_a_host_without_a_port_has_that_of_a_server_and_everything_else_is_as_it_was(
    monkeypatch: pytest.MonkeyPatch, target: str, meant: str
) -> None:
    assert ClientSettings.of(target=target).target == meant
    monkeypatch.setenv("NPUCALL_TARGET", target)
    assert ClientSettings.of().target == meant


@each(
    ("target", "said"),
    [
        ("pool:a:50051", PoolTarget("fixed", ("a:50051",))),
        ("pool:a:1, b.lab:2,[fd00::1]:3", PoolTarget("fixed", ("a:1", "b.lab:2", "[fd00::1]:3"))),
        ("pool:a:1,b:1,a:1", PoolTarget("fixed", ("a:1", "b:1"))),
        ("pool:dns:npucall.lab.svc:50051", PoolTarget("names", ("npucall.lab.svc", 50051))),
        ("pool:file:/shared/members.json", PoolTarget("files", Path("/shared/members.json"))),
        ("pool:file:ready:here", PoolTarget("files", Path("ready:here"))),
        ("pool:directory:main:5,second", PoolTarget("directories", ("main:5", "second:50050"))),
        ("pool:directory:[fd00::1]", PoolTarget("directories", ("[fd00::1]:50050",))),
    ],
)
def test_a_target_says_its_source(target: str, said: PoolTarget) -> None:
    assert parse(target) == said


@each(
    ("target", "sentence"),
    [
        ("pool:", "expected HOST:PORT"),
        ("pool:a", "expected HOST:PORT"),
        ("pool:a:1,", "expected HOST:PORT"),
        ("pool:unix:/run/npucall.sock", "expected HOST:PORT"),
        ("pool:unix:1", "expected the name or IP address of a host before :1, found 'unix:1'"),
        ("pool:dns:50051", "expected the name or IP address"),
        ("pool:dns:[fd00::1]:5", r"expected a name after dns:, found \[fd00::1\]"),
        ("pool:file:", "expected a path after file:, found none"),
        ("pool:directory:", "expected the name or IP address"),
        ("pool:directory:a:0", "expected HOST:PORT"),
    ],
)
def test_a_pool_that_says_none_is_refused_in_a_sentence(target: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=rf"target: {sentence}.* in '.*' \(NPUCALL_TARGET\)"):
        parse(target)


@each(
    "address",
    ["a:1", "host-3.lab:65535", "10.0.0.1:50051", "[fd00::1]:50051", "[fe80::1%eth0]:1", "a_b:7"],
)
def test_an_address_is_a_host_and_a_port(address: str) -> None:
    assert check_address(address) == address


@each(
    "address",
    [
        "", ":", "a", "a:", ":1", "a:0", "a:65536", "a:065", "a:+1", "a:1_0", "a:\uff11", "a:1 ",
        "a b:1", "-a:1", "a-:1", "a/b:1", "a@b:1", "unix:1", "UNIX:1", "dns:1", "ipv4:1", "xds:1",
        "unix-abstract:1", "dns:///a:1", "fd00::1:1", "[a]:1", "[10.0.0.1]:1", "10.0.0:1",
        "300.0.0.1:1", "0.0.0.0:1", "[::]:1", "a\n:1", f"{'a' * 300}:1",
    ],
)  # fmt: skip
def test_anything_else_is_no_address(address: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        check_address(address)


def test_the_members_that_a_target_names_are_listed_at_once() -> None:
    heard: list[tuple[list[Member], bool]] = []
    source = source_of(ClientSettings.of(target="pool:a:1,b:2"))
    source.start(lambda members, *, complete: heard.append((list(members), complete)))
    source.look()
    assert heard == [([Member("a:1"), Member("b:2")], True)]
    assert source.why_empty() == ""
    source.close()
