"""What a server of each product says of operators that it lacks [src:product-lists]."""

from functools import cache

import pytest
from tests.operators.defects import TABLES
from tests.rows import each

import npucall_client
from npucall.dtypes import BF16
from npucall.errors import DTypeError
from npucall.products import product_of
from npucall.tensors import TensorSpec
from npucall_client import Client

from . import raw
from .raw import KL, KL_TARGET

A2, A3, A950 = "Ascend910B1", "Ascend910_9391", "Ascend950PR_9589"
OLDER = ("Ascend910A", "Ascend310P3", "Ascend310B1", "Ascend310")


@cache
def local(soc: str) -> Client:
    return npucall_client.connect("local:", soc=soc)


def refusal(operator: str, variant: str, soc: str, arguments: raw.Arguments) -> DTypeError:
    with pytest.raises(DTypeError) as caught:
        raw.plan(local(soc), operator, variant, arguments)
    assert caught.value.aclnn_status == 161002
    assert caught.value.details["soc"] == soc
    return caught.value


@each("soc", [A2, A3, A950, *OLDER])
def test_the_listing_says_where_an_operator_is_available(soc: str) -> None:
    found = {(each.name, each.variant): each.available for each in local(soc).operators()}
    assert found == {
        (table.operator.name, table.operator.variant): product_of(soc).soc in table.statement.takes
        for table in TABLES
    }


@each("variant", ["documented", "community"])
@each("soc", [A3, A950])
def test_the_refusal_names_the_variant_that_the_product_has(soc: str, variant: str) -> None:
    error = refusal(KL_TARGET, variant, soc, raw.valid(KL_TARGET))
    assert f"({variant})" in str(error)
    assert "has the variant builtin" in str(error)


@each("soc", OLDER)
def test_the_refusal_names_no_variant_where_the_product_has_none(soc: str) -> None:
    assert "variant" not in str(refusal(KL_TARGET, "documented", soc, raw.valid(KL_TARGET)))


def test_ascend910b_without_a_digit_is_the_old_training_part() -> None:
    arguments = raw.valid(KL, self=TensorSpec(BF16, raw.SHAPE))
    error = refusal(KL, "", "Ascend910B", arguments)
    assert error.parameter == "self"
    assert "FLOAT or FLOAT16" in str(error)
    raw.plan(local("Ascend910B4-1"), KL, "", arguments)
