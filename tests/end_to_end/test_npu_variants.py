"""Which variant of an operator a host has: none in CANN 8.1, CANN's own, a custom package's."""

from collections.abc import Iterator

import numpy as np
import pytest
from tests.npu import running_npu_server

import npucall_client
from npucall.errors import OperatorUnavailableError, VariantUnavailableError
from npucall_client import Client

KL_TARGET, KL = "aclnnKlDivTargetBackward", "aclnnKlDivBackward"
ONES = np.ones((2, 3), np.float32)
ARGUMENTS = {"grad_output": ONES, "self": ONES, "target": ONES}
VARIANTS = ("builtin", "community", "documented")
HOSTS = {"builtin": "npu_server", "community": "community_npu_server"}


@pytest.fixture(scope="module", params=HOSTS)
def host(request: pytest.FixtureRequest) -> str:
    """Named by the variant that it has."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest, host: str) -> Iterator[Client]:
    server = request.getfixturevalue(HOSTS[host])
    with npucall_client.connect(server.target) as client:
        yield client


def test_the_variant_of_the_host_is_the_default_and_in_every_reply(
    client: Client, host: str
) -> None:
    assert client.server_info().default_variant == host
    assert client.operator(KL_TARGET).variant == host
    for wish in {}, {"variant": host}:
        assert client.execute(KL_TARGET, **wish, **ARGUMENTS).variant == host
        assert client.plan(KL_TARGET, **wish, **ARGUMENTS).variant == host


def test_any_other_variant_is_listed_and_refused_by_the_name_of_the_one_that_is_there(
    client: Client, host: str
) -> None:
    listed = {each.variant: each for each in client.operators() if each.name == KL_TARGET}
    assert sorted(listed) == sorted(VARIANTS)
    assert listed[host].available
    for variant in {*VARIANTS} - {host}:
        said = f"expected variant {host} of {KL_TARGET}, which this host has, found {variant}"
        for described in listed[variant], client.operator(KL_TARGET, variant):
            assert (described.available, described.unavailable_because) == (False, said)
        for ask in client.execute, client.plan:
            with pytest.raises(VariantUnavailableError, match=said) as caught:
                ask(KL_TARGET, variant=variant, **ARGUMENTS)
            named = {"operator": KL_TARGET, "variant": variant}
            assert caught.value.details.items() >= named.items()


def test_each_host_computes_what_its_variant_says(client: Client, host: str) -> None:
    """Of -0.1, where a logarithm is none: community leaves it out, builtin does not."""
    target = np.array([[0.3, -0.1, 0.7]], np.float16)
    arguments = {"grad_output": target, "self": target, "target": target, "reduction": 1}
    found = client.run(KL_TARGET, **arguments).tobytes()
    with npucall_client.connect("local:") as reference:
        for variant in HOSTS:
            expected = reference.run(KL_TARGET, variant=variant, **arguments)
            assert (found == expected.tobytes()) is (variant == host)


def test_cann_8_1_lacks_the_operator_says_so_and_runs_the_others() -> None:
    said = f"expected {KL_TARGET} in a library of this host, found it in no library"
    with (
        running_npu_server(generation="8.1") as server,
        npucall_client.connect(server.target) as client,
    ):
        for ask in client.execute, client.plan:
            with pytest.raises(OperatorUnavailableError, match=said) as caught:
                ask(KL_TARGET, **ARGUMENTS)
            assert type(caught.value) is OperatorUnavailableError
            assert caught.value.details["operator"] == KL_TARGET
        listed = [each for each in client.operators() if each.name == KL_TARGET]
        for described in (*listed, client.operator(KL_TARGET)):
            assert (described.available, described.unavailable_because) == (False, said)
        assert len(listed) == 3
        info = client.server_info()
        device = info.device
        assert info.default_variant == ""
        assert (device.cann_version, device.runtime_version) == ("8.1.RC1", "1.13.0")
        assert client.run(KL, reduction=2, **ARGUMENTS).tolist() == (-ONES).tolist()


def test_a_host_of_cann_9_tells_its_versions_and_runs_operators_of_its_custom_package(
    client: Client, host: str
) -> None:
    device = client.server_info().device
    assert (device.cann_version, device.runtime_version) == ("9.0.0", "1.17.0")
    if host == "community":
        out = np.empty((2, 3), np.float32)
        found = client.run("aclnnVendorScale", self=ONES, factor=2.5, outputs={"out": out})
        assert found is out
        assert out.tolist() == [[2.5] * 3] * 2
