"""Which variant of an operator a host has: none in CANN 8.1, CANN's own, a custom package's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TypeAlias

import numpy as np
import pytest
from tests.npu import running_npu_server

import npucall_client
from npucall.errors import OperatorUnavailableError, VariantUnavailableError
from npucall_client import Client

KL_TARGET, KL = "aclnnKlDivTargetBackward", "aclnnKlDivBackward"
ONES = np.ones((2, 3), np.float32)
ARGUMENTS = {"grad_output": ONES, "self": ONES, "target": ONES}
HOSTS = {
    "old": {"generation": "8.1"},
    "builtin": {},
    "community": {"custom": True},
}
VARIANTS = ("builtin", "community", "documented")

Hosts: TypeAlias = Callable[[str], Client]


@pytest.fixture(scope="module")
def clients() -> Iterator[Hosts]:
    """A client of each kind of host, whose server starts when it is first asked for."""
    known: dict[str, Client] = {}
    with ExitStack() as opened:

        def client_of(host: str) -> Client:
            if host not in known:
                server = opened.enter_context(running_npu_server(**HOSTS[host]))
                known[host] = opened.enter_context(npucall_client.connect(server.target))
            return known[host]

        yield client_of


@pytest.mark.parametrize("host", ["builtin", "community"])
def test_the_variant_of_the_host_is_the_default_and_in_every_reply(
    clients: Hosts, host: str
) -> None:
    client = clients(host)
    assert client.server_info().default_variant == host
    assert client.operator(KL_TARGET).variant == host
    assert client.execute(KL_TARGET, **ARGUMENTS).variant == host
    assert client.execute(KL_TARGET, variant=host, **ARGUMENTS).variant == host
    assert client.plan(KL_TARGET, **ARGUMENTS).variant == host


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("host", ["builtin", "community"])
def test_any_other_variant_is_refused_by_the_name_of_the_one_that_is_there(
    clients: Hosts, host: str, variant: str
) -> None:
    if variant == host:
        return
    client = clients(host)
    said = f"expected variant {host} of {KL_TARGET}, which this host has, found {variant}"
    for ask in client.execute, client.plan:
        with pytest.raises(VariantUnavailableError, match=said) as caught:
            ask(KL_TARGET, variant=variant, **ARGUMENTS)
        assert caught.value.details.items() >= {"operator": KL_TARGET, "variant": variant}.items()
    described = client.operator(KL_TARGET, variant)
    assert (described.available, described.unavailable_because) == (False, said)


@pytest.mark.parametrize("host", ["builtin", "community"])
def test_the_listing_has_every_variant_and_says_which_one_runs(clients: Hosts, host: str) -> None:
    listed = {each.variant: each for each in clients(host).operators() if each.name == KL_TARGET}
    assert sorted(listed) == sorted(VARIANTS)
    assert [variant for variant, each in listed.items() if each.available] == [host]
    for variant, each in listed.items():
        assert bool(each.unavailable_because) is (variant != host)


def test_each_host_computes_what_its_variant_says(clients: Hosts) -> None:
    """Of -0.1, where a logarithm is none: community leaves it out, builtin does not."""
    target = np.array([[0.3, -0.1, 0.7]], np.float16)
    arguments = {"grad_output": target, "self": target, "target": target, "reduction": 1}
    found = {host: clients(host).run(KL_TARGET, **arguments) for host in ("builtin", "community")}
    assert found["builtin"].tobytes() != found["community"].tobytes()
    with npucall_client.connect("local:") as reference:
        for host, gradient in found.items():
            expected = reference.run(KL_TARGET, variant=host, **arguments)
            assert gradient.tobytes() == expected.tobytes()


def test_cann_8_1_lacks_the_operator_and_says_so(clients: Hosts) -> None:
    client, said = (
        clients("old"),
        f"expected {KL_TARGET} in a library of this host, found it in no library",
    )
    for ask in client.execute, client.plan:
        with pytest.raises(OperatorUnavailableError, match=said) as caught:
            ask(KL_TARGET, **ARGUMENTS)
        assert type(caught.value) is OperatorUnavailableError
        assert caught.value.details["operator"] == KL_TARGET
    described = client.operator(KL_TARGET)
    assert (described.available, described.unavailable_because) == (False, said)


def test_cann_8_1_lists_the_operator_with_the_reason(clients: Hosts) -> None:
    listed = [each for each in clients("old").operators() if each.name == KL_TARGET]
    assert [each.available for each in listed] == [False] * 3
    for each in listed:
        assert each.unavailable_because == (
            f"expected {KL_TARGET} in a library of this host, found it in no library"
        )


def test_cann_8_1_has_no_default_variant_and_runs_the_other_operators(clients: Hosts) -> None:
    client = clients("old")
    assert client.server_info().default_variant == ""
    assert client.execute(KL, reduction=2, **ARGUMENTS).value.tolist() == (-ONES).tolist()


@pytest.mark.parametrize(
    ("host", "cann", "runtime"), [("old", "8.1.RC1", "1.13.0"), ("builtin", "9.0.0", "1.17.0")]
)
def test_a_server_tells_the_versions_of_its_host(
    clients: Hosts, host: str, cann: str, runtime: str
) -> None:
    device = clients(host).server_info().device
    assert (device.cann_version, device.runtime_version) == (cann, runtime)


def test_an_operator_of_the_custom_package_runs(clients: Hosts) -> None:
    out = np.empty((2, 3), np.float32)
    found = clients("community").run(
        "aclnnVendorScale", self=ONES, factor=2.5, outputs={"out": out}
    )
    assert found is out
    assert out.tolist() == [[2.5] * 3] * 2
