"""npucall.products: SoC strings of operators.md 0.8."""

from __future__ import annotations

import pytest

from npucall.errors import ArgumentError
from npucall.products import DEFAULT_SOC, PRODUCTS, product_of

# Short SoC name: the strings that CANN's runtime gives, "..." of the table left out.
SOCS = {
    "Ascend910B": "Ascend910B1 Ascend910B2 Ascend910B2C Ascend910B3 Ascend910B4 Ascend910B4-1",
    "Ascend910_93": "Ascend910_93 Ascend910_9391 Ascend910_9392 Ascend910_9381 Ascend910_9382 "
    "Ascend910_9372 Ascend910_9362 Ascend910_9363",
    "Ascend950": "Ascend950 Ascend910_95 Ascend950PR_9589 Ascend950PR_9579 Ascend950PR_9599 "
    "Ascend950PR_957b Ascend950DT_9591 Ascend950DT_9581 Ascend950DT_9571 Ascend950DT_95A1",
    "Ascend910": "Ascend910 Ascend910A Ascend910B Ascend910ProA Ascend910ProB Ascend910PremiumA",
    "Ascend310P": "Ascend310P Ascend310P1 Ascend310P3 Ascend310P5 Ascend310P7",
    "Ascend310B": "Ascend310B Ascend310B1 Ascend310B2 Ascend310B3 Ascend310B4",
    "Ascend310": "Ascend310",
}
PAIRS = [(soc, product) for product, socs in SOCS.items() for soc in socs.split()]


@pytest.mark.parametrize(("soc", "product"), PAIRS)
def test_a_soc_string_belongs_to_its_product(soc: str, product: str) -> None:
    assert product_of(soc).soc == product


def test_910b_is_the_old_training_part_unless_a_digit_follows() -> None:
    assert product_of("Ascend910B").name == "Atlas training"
    assert product_of("Ascend910B1").name == "Atlas A2"


def test_the_products_are_those_of_the_table() -> None:
    assert sorted(product.soc for product in PRODUCTS) == sorted(SOCS)


def test_the_default_is_an_a2() -> None:
    assert product_of(DEFAULT_SOC).soc == "Ascend910B"


@pytest.mark.parametrize(
    "soc",
    ["", "ascend910B1", "910B1", "Ascend910B1\n", " Ascend910B1", "Ascend910B9", "Ascend910_9",
     "Ascend910B1x", "Ascend310P2", "Ascend610Lite"],
)  # fmt: skip
def test_an_unknown_string_is_refused_with_the_families_there_are(soc: str) -> None:
    with pytest.raises(ArgumentError, match="Ascend910_93") as caught:
        product_of(soc)
    assert caught.value.parameter == "soc"
    assert repr(soc) in str(caught.value)
