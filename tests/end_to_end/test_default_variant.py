"""The variant that runs if a call names none: one that the product has, here and on a server."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest

import npucall_client
from npucall.errors import DTypeError
from npucall_server.app import Server, build
from npucall_server.devices import NoDeviceError, open_device
from npucall_server.log import Log
from npucall_server.settings import ServerSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_client import Client

KL_TARGET = "aclnnKlDivTargetBackward"
ONES = np.ones((2, 3), np.float32)
ARGUMENTS = {"grad_output": ONES, "self": ONES, "target": ONES}

# Of the three variants A2 has all, A3 and 950 have builtin alone, older products none.
DEFAULTS = {
    "Ascend910B1": "documented",
    "Ascend910_9391": "builtin",
    "Ascend950PR_9589": "builtin",
    "Ascend910A": "documented",
    "Ascend310P1": "documented",
    "Ascend310B1": "documented",
    "Ascend310": "documented",
}
WITHOUT_ANY = ("Ascend910A", "Ascend310P1", "Ascend310B1", "Ascend310")
WITH_SOME = tuple(soc for soc in DEFAULTS if soc not in WITHOUT_ANY)


@contextmanager
def local(soc: str) -> Iterator[Client]:
    with npucall_client.connect("local:", soc=soc) as client:
        yield client


@contextmanager
def served(soc: str) -> Iterator[Client]:
    settings = ServerSettings(soc=soc, listen="127.0.0.1:0")
    device = open_device(settings, print)
    server = Server(build(settings, device, Log(stream=io.StringIO())))
    server.start()
    try:
        with npucall_client.connect(server.address) as client:
            yield client
    finally:
        server.drain()
        device.close()


@pytest.fixture(params=[local, served], scope="module")
def client(request: pytest.FixtureRequest, soc: str) -> Iterator[Client]:
    with request.param(soc) as client:
        yield client


@pytest.mark.parametrize("soc", DEFAULTS, scope="module")
def test_the_default_variant_is_one_that_the_product_has(client: Client, soc: str) -> None:
    assert client.server_info().default_variant == DEFAULTS[soc]
    assert client.operator(KL_TARGET).variant == DEFAULTS[soc]


@pytest.mark.parametrize("soc", WITH_SOME, scope="module")
def test_a_call_without_a_variant_runs(client: Client, soc: str) -> None:
    assert client.execute(KL_TARGET, **ARGUMENTS).variant == DEFAULTS[soc]


@pytest.mark.parametrize("soc", WITHOUT_ANY, scope="module")
def test_on_a_product_without_any_variant_a_call_is_refused_by_the_product_s_name(
    client: Client, soc: str
) -> None:
    product = client.server_info().product
    with pytest.raises(DTypeError, match=rf"expected a product that has .*, found {product} \("):
        client.run(KL_TARGET, **ARGUMENTS)


@pytest.mark.parametrize(
    ("soc", "variant", "has"),
    [
        ("Ascend910_9391", "documented", "builtin"),
        ("Ascend950PR_9589", "community", "builtin"),
        ("Ascend310P1", "documented", "none"),
    ],
)
def test_a_variant_that_the_product_lacks_is_refused_at_the_start(
    soc: str, variant: str, has: str
) -> None:
    with pytest.raises(NoDeviceError) as caught:
        open_device(ServerSettings(soc=soc, variant=variant), print)
    said = str(caught.value)
    assert said.startswith(f"variant: expected {has}, as Ascend")
    assert said.endswith(f"found {variant}; the setting soc chooses the product")


def test_the_server_then_ends_with_69() -> None:
    flags = ["--soc=Ascend910_9391", "--variant=documented", "--listen=127.0.0.1:0"]
    command = [sys.executable, "-m", "npucall_server", *flags]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 69
    assert ended.stderr.startswith("npucall-server: variant: expected builtin, ")


@pytest.mark.parametrize("variant", ["builtin", "community", "documented"])
def test_a_variant_that_the_product_has_is_taken(variant: str) -> None:
    device = open_device(ServerSettings(soc="Ascend910B1", variant=variant), print)
    assert device.default_variant == variant
    device.close()


def test_printed_settings_of_any_product_can_be_started_from() -> None:
    """A default that is printed is no wish."""
    assert 'variant = ""\n' in ServerSettings(soc="Ascend910_9391").as_toml()
    device = open_device(ServerSettings(soc="Ascend910_9391", variant=""), print)
    assert device.default_variant == "builtin"
    device.close()
