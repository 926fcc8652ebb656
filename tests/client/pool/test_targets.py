"""The texts of a pool's target, and which addresses are any."""

from __future__ import annotations

from pathlib import Path

import pytest

from npucall.membership import check_address
from npucall_client.pool.members import Member
from npucall_client.pool.sources import source_of
from npucall_client.settings import ClientSettings
from npucall_client.targets import Announced, Listed, Resolved, Written, parse


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("pool:a:50051", Listed(("a:50051",))),
        ("pool:a:1, b.lab:2,[fd00::1]:3", Listed(("a:1", "b.lab:2", "[fd00::1]:3"))),
        ("pool:a:1,b:1,a:1", Listed(("a:1", "b:1"))),
        ("pool:dns:npucall.lab.svc:50051", Resolved("npucall.lab.svc", 50051)),
        ("pool:file:/shared/members.json", Written(Path("/shared/members.json"))),
        ("pool:file:ready:here", Written(Path("ready:here"))),
        ("pool:directory:main:5,second", Announced(("main:5", "second:50050"))),
        ("pool:directory:[fd00::1]", Announced(("[fd00::1]:50050",))),
    ],
)
def test_a_target_says_its_source(target: str, said: object) -> None:
    assert parse(target) == said


@pytest.mark.parametrize(
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
def test_a_target_that_says_none_is_refused_in_a_sentence(target: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=rf"target: {sentence}.* in '.*' \(NPUCALL_TARGET\)"):
        parse(target)


@pytest.mark.parametrize(
    "address",
    ["a:1", "host-3.lab:65535", "10.0.0.1:50051", "[fd00::1]:50051", "[fe80::1%eth0]:1", "a_b:7"],
)
def test_an_address_is_a_host_and_a_port(address: str) -> None:
    assert check_address(address) == address


@pytest.mark.parametrize(
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
