"""npucall.products: SoC strings [src:products]."""

from __future__ import annotations

import pytest
from tests.rows import each

from npucall.errors import ArgumentError
from npucall.products import DEFAULT_SOC, PRODUCTS, product_of, taken_for

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


@each(("soc", "product"), PAIRS)
def test_a_soc_string_belongs_to_its_product(soc: str, product: str) -> None:
    assert product_of(soc).soc == product
    assert taken_for(soc) == (product_of(soc), "")  # no guess


def test_910b_is_the_old_training_part_unless_a_digit_follows() -> None:
    assert product_of("Ascend910B").name == "Atlas training"
    assert product_of("Ascend910B1").name == "Atlas A2"


def test_the_products_are_those_of_the_table() -> None:
    assert sorted(product.soc for product in PRODUCTS) == sorted(SOCS)


def test_the_default_is_an_a2() -> None:
    assert product_of(DEFAULT_SOC).soc == "Ascend910B"


@each(
    "soc",
    ["", "ascend910B1", "910B1", "Ascend910B1\n", " Ascend910B1", "Ascend910B9", "Ascend910_9",
     "Ascend910B1x", "Ascend310P2", "Ascend610Lite"],
)  # fmt: skip
def test_an_unknown_string_is_refused_with_the_families_there_are(soc: str) -> None:
    with pytest.raises(ArgumentError, match="Ascend910_93") as caught:
        product_of(soc)
    assert caught.value.parameter == "soc"
    assert repr(soc) in str(caught.value)


@each(
    ("soc", "product"),
    [
        ("Ascend910B5", "Ascend910B"),
        ("Ascend910B4-2", "Ascend910B"),
        ("Ascend910_9361", "Ascend910_93"),
        ("Ascend910_5591", "Ascend950"),
        ("Ascend910_9691", "Ascend950"),
        ("Ascend350", "Ascend950"),
        ("Ascend950XX_1", "Ascend950"),
        ("Ascend910ProC", "Ascend910"),
        ("Ascend310P2", "Ascend310P"),
        ("Ascend310P4", "Ascend310P"),
        ("Ascend310B5", "Ascend310B"),
    ],
)
def test_a_name_of_a_host_that_is_unknown_is_taken_for_the_nearest_product(
    soc: str, product: str
) -> None:
    with pytest.raises(ArgumentError):
        product_of(soc)
    taken = taken_for(soc)
    assert taken.product.soc == product
    assert taken.guess.startswith(f"soc: npucall does not know {soc}, and guesses")
    assert f"guesses from its family that it is like {taken.product}" in taken.guess
    assert "npucall conform" in taken.guess


@each("soc", ["", "ascend910B5", "910B5", "Ascend910B5\n", "Ascend610Lite", "Ascend777X"])
def test_a_name_that_is_near_to_none_is_refused_as_before(soc: str) -> None:
    with pytest.raises(ArgumentError, match="Ascend910_93"):
        taken_for(soc)
