"""Every operator of the catalogue on a simulated NPU: the bits of the CPU, in each form of call."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.more import parts
from tests.simulator.control import Simulator

from npucall.compute.evaluate import run as evaluate
from npucall.declare.declaration import Operator
from npucall.declare.samples import Form, sample, sample_storages
from npucall.errors import NpucallError
from npucall.operators import CATALOGUE

from .calls import Case
from .opened import Open, Opened

OTHERS = ("Ascend910_9362", "Ascend950PR_9589", "Ascend910A", "Ascend310P3", "Ascend310B1")
"""A SoC of each other product that has operators."""


def samples(device: Opened, operator: Operator[Any, Any]) -> Iterator[tuple[str, Case]]:
    """The small calls of an operator that its rules take, and what they answer."""
    for dtype in operator.dtypes_on(device.product):
        for form in Form:
            try:
                call = sample(operator, device.product, device.catalogue, dtype, form)
            except NpucallError:
                continue
            storages = sample_storages(call, 1)
            answers = [bytes(answer) for answer in evaluate(call, storages)]
            yield f"{operator.title} {dtype} {form.value}", Case(call, dict(storages), answers)


def wrong(device: Opened, *operators: Operator[Any, Any]) -> list[str]:
    found = []
    for operator in operators:
        if device.catalogue.unavailable_because(operator):  # this host has another variant
            continue
        for title, case in samples(device, operator):
            try:
                if not device.serves(case):
                    found.append(f"{title}: other bits")
            except NpucallError as error:
                found.append(f"{title}: {error}")
    return found


@parts(few=slice(0, None, 12), more=slice(6, None, 12))
def test_operators_give_the_bits_of_the_cpu(open_device: Open, part: slice) -> None:
    assert wrong(open_device(), *list(CATALOGUE)[part]) == []


@parts(more=slice(3, None, 4))
@pytest.mark.parametrize("soc", OTHERS)
def test_other_products_do_so_too(
    open_device: Open, simulator: Simulator, soc: str, part: slice
) -> None:
    simulator.set_soc(soc)
    device = open_device()
    assert device.device.soc == soc
    assert wrong(device, *list(CATALOGUE)[part]) == []
