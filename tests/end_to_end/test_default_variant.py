"""The variant that runs if a call names none: one that the product has, here and on a server."""

from contextlib import ExitStack

import numpy as np
import pytest

import npucall_client
from npucall.errors import DTypeError
from npucall_server.commands.serve import read, serve
from npucall_server.devices import open_device
from npucall_server.settings.server import ServerSettings

from . import wire

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


@pytest.mark.parametrize("where", ["local", "served"])
def test_the_default_variant_is_one_that_the_product_has(where: str) -> None:
    """On a product without any a call is refused by the product's name."""
    for soc, variant in DEFAULTS.items():
        with ExitStack() as stack:
            if where == "served":
                target = stack.enter_context(wire.server_here(soc=soc)).address
                client = stack.enter_context(npucall_client.connect(target))
            else:
                client = stack.enter_context(npucall_client.connect("local:", soc=soc))
            info = client.server_info()
            assert (soc, info.default_variant) == (soc, variant)
            assert client.operator(KL_TARGET).variant == variant
            if soc in WITHOUT_ANY:
                said = rf"expected a product that has .*, found {info.product} \("
                with pytest.raises(DTypeError, match=said):
                    client.run(KL_TARGET, **ARGUMENTS)
            else:
                assert client.execute(KL_TARGET, **ARGUMENTS).variant == variant


def test_a_variant_that_the_product_lacks_ends_the_server_with_69(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for soc, variant, has in (
        ("Ascend910_9391", "documented", "builtin"),
        ("Ascend950PR_9589", "community", "builtin"),
        ("Ascend310P1", "documented", "none"),
    ):
        flags = f"--soc={soc}", f"--variant={variant}", "--listen=127.0.0.1:0"
        assert serve(read(flags)) == 69
        said = capsys.readouterr().err
        assert said.startswith(f"npucall-server: variant: expected {has}, as Ascend")
        assert said.endswith(f"found {variant}; the setting soc chooses the product\n")


def test_a_variant_that_the_product_has_is_taken() -> None:
    """A default that is printed is no wish: printed settings of any product can be started from."""
    assert 'variant = ""\n' in ServerSettings(soc="Ascend910_9391").as_toml()
    for soc, variant, found in (
        *(("Ascend910B1", each, each) for each in ("builtin", "community", "documented")),
        ("Ascend910_9391", "", "builtin"),
    ):
        device = open_device(ServerSettings(soc=soc, variant=variant), print)
        assert device.default_variant == found
        device.close()
