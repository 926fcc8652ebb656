"""Every operator of the catalogue on a simulated NPU: the bits of the CPU, in each form of call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.more import every_twelfth, only

from npucall.compute.evaluate import run as evaluate
from npucall.declare.samples import Form, sample, sample_storages
from npucall.errors import NpucallError
from npucall.operators import CATALOGUE

from .asked import Asked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulator.control import Simulator

    from npucall.declare.declaration import Operator

    from .opened import Opened

    Open = Callable[..., Opened]

OTHERS = ("Ascend910_9362", "Ascend950PR_9589", "Ascend910A", "Ascend310P3", "Ascend310B1")
"""A SoC of each other product that has operators."""


def samples(device: Opened, operator: Operator[Any, Any]) -> Iterator[tuple[str, Asked]]:
    """The small calls of an operator that its rules take, and what they answer."""
    product = device.device.product
    for dtype in operator.dtypes_on(product):
        for form in Form:
            try:
                call = sample(operator, product, device.device.catalogue, dtype, form)
            except NpucallError:
                continue
            storages = sample_storages(call, 1)
            answers = [bytes(answer) for answer in evaluate(call, storages)]
            yield f"{operator.title} {dtype} {form.value}", Asked(call, dict(storages), answers)


def wrong(device: Opened, operator: Operator[Any, Any]) -> list[str]:
    found = []
    for title, asked in samples(device, operator):
        try:
            if device.answers(asked) != asked.answers:
                found.append(f"{title}: other bits")
        except NpucallError as error:
            found.append(f"{title}: {error}")
    return found


def operators_of(device: Opened) -> list[Operator[Any, Any]]:
    catalogue = device.device.catalogue
    return [each for each in CATALOGUE if not catalogue.unavailable_because(each)]


@pytest.mark.parametrize("operator", every_twelfth(CATALOGUE), ids=lambda operator: operator.title)
def test_an_operator_gives_the_bits_of_the_cpu(open_device: Open, operator: Any) -> None:
    device = open_device()
    if operator not in operators_of(device):
        pytest.skip("this host has another variant")
    assert wrong(device, operator) == []


@pytest.mark.more
@pytest.mark.parametrize("soc", only(*OTHERS))
def test_other_products_do_so_too(open_device: Open, simulator: Simulator, soc: str) -> None:
    simulator.set_soc(soc)
    device = open_device()
    assert device.device.soc == soc
    assert [line for operator in operators_of(device) for line in wrong(device, operator)] == []
