"""What the SoC of a host is taken for: known, near to what is known, or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from npucall.errors import ArgumentError

from .situations import l1

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulator.control import Simulator

    from .opened import Opened

    Open = Callable[..., Opened]


def test_a_known_name_is_no_guess(device: Opened) -> None:
    assert (device.device.facts().product_guess, device.notes) == ("", [])


@pytest.mark.parametrize(
    ("soc", "product"),
    [
        ("Ascend910B5", "Ascend910B"),
        ("Ascend910_9361", "Ascend910_93"),
        ("Ascend910_5591", "Ascend950"),
        ("Ascend310P2", "Ascend310P"),
    ],
)
def test_a_name_that_is_near_to_a_product_s_is_served_and_said_to_be_a_guess(
    simulator: Simulator, open_device: Open, soc: str, product: str
) -> None:
    simulator.set_soc(soc)
    device = open_device()
    assert (device.device.soc, device.device.product.soc) == (soc, product)
    assert device.serves(l1(device.device))
    (note,) = device.notes
    assert note == device.device.facts().product_guess
    assert f"does not know {soc}, and guesses from its family that it is like {product}" in note


def test_a_name_that_is_near_to_none_is_refused(simulator: Simulator, open_device: Open) -> None:
    simulator.set_soc("Ascend777X")
    with pytest.raises(ArgumentError, match="found 'Ascend777X'"):
        open_device()
    assert simulator.live_objects() == {}
