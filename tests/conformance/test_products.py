"""What a product says that lacks operators or dtypes [src:product-lists]; each in this process."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest
from tests.operators.rows import each_row

import npucall_client
from npucall.dtypes import BF16, INT32
from npucall.errors import DTypeError
from npucall.tensors import TensorSpec

from . import raw
from .raw import KL, KL_TARGET, L1

if TYPE_CHECKING:
    from npucall_client import Client

A2, A3, A950 = "Ascend910B1", "Ascend910_9391", "Ascend950PR_9589"
TRAINING, INFERENCE, SMALL, OLD = "Ascend910A", "Ascend310P3", "Ascend310B1", "Ascend310"
SOCS = (A2, A3, A950, TRAINING, INFERENCE, SMALL, OLD)
HAS = {
    (KL, ""): (A2, A3, A950, TRAINING, INFERENCE),
    (KL_TARGET, "builtin"): (A2, A3, A950),
    (KL_TARGET, "community"): (A2,),
    (KL_TARGET, "documented"): (A2,),
    # 0.8 says that Ascend 310 has none of these; 1.3 speaks of "310B etc."
    (L1, ""): (A2, A3, A950, TRAINING, INFERENCE, SMALL),
}


@cache
def local(soc: str) -> Client:
    return npucall_client.connect("local:", soc=soc)


def refusal(operator: str, variant: str, soc: str, arguments: raw.Arguments) -> DTypeError:
    with pytest.raises(DTypeError) as caught:
        raw.plan(local(soc), operator, variant, arguments)
    assert caught.value.aclnn_status == 161002
    assert caught.value.details["soc"] == soc
    return caught.value


@each_row("soc", [SMALL, OLD])
def test_a_product_without_the_operator_blames_an_uncastable_output_first(soc: str) -> None:
    arguments = raw.valid(KL, out=TensorSpec(INT32, raw.SHAPE))
    assert refusal(KL, "", soc, arguments).parameter == "out"
    assert refusal(KL, "", soc, raw.valid(KL)).parameter == "grad_output"


@each_row("variant", ["documented", "community"])
@each_row("soc", [A3, A950])
def test_the_refusal_names_the_variant_that_the_product_has(soc: str, variant: str) -> None:
    error = refusal(KL_TARGET, variant, soc, raw.valid(KL_TARGET))
    assert f"({variant})" in str(error)
    assert "has the variant builtin" in str(error)


@each_row("soc", [TRAINING, INFERENCE, SMALL, OLD])
def test_the_refusal_names_no_variant_where_the_product_has_none(soc: str) -> None:
    assert "variant" not in str(refusal(KL_TARGET, "documented", soc, raw.valid(KL_TARGET)))


@each_row("soc", SOCS)
def test_the_listing_says_where_an_operator_is_available(soc: str) -> None:
    listed = {(each.name, each.variant): each.available for each in local(soc).operators()}
    expected = {key: soc in socs for key, socs in HAS.items()}
    assert {key: listed[key] for key in expected} == expected


def test_ascend910b_without_a_digit_is_the_old_training_part() -> None:
    arguments = raw.valid(KL, self=TensorSpec(BF16, raw.SHAPE))
    error = refusal(KL, "", "Ascend910B", arguments)
    assert error.parameter == "self"
    assert "FLOAT or FLOAT16" in str(error)
    raw.plan(local("Ascend910B4-1"), KL, "", arguments)
