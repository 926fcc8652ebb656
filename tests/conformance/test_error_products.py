"""Which types each product takes: operators.md 1.1 to 1.3, typed once more."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

import pytest

import npucall_client
from npucall.dtypes import BF16, DTYPES, FLOAT, FLOAT16, INT32
from npucall.errors import DTypeError
from npucall.tensors import TensorSpec

from . import raw
from .raw import KL, KL_TARGET, L1

if TYPE_CHECKING:
    from npucall_client import Client

THREE, TWO = {"FLOAT", "FLOAT16", "BF16"}, {"FLOAT", "FLOAT16"}
NONE: set[str] = set()
A2, A3, A950 = "Ascend910B1", "Ascend910_9391", "Ascend950PR_9589"
TRAINING, INFERENCE, SMALL, OLD = "Ascend910A", "Ascend310P3", "Ascend310B1", "Ascend310"
SOCS = (A2, A3, A950, TRAINING, INFERENCE, SMALL, OLD)
TAKES = {
    (KL, ""): dict(zip(SOCS, (THREE, THREE, THREE, TWO, TWO, NONE, NONE), strict=True)),
    (KL_TARGET, "builtin"): dict(
        zip(SOCS, (THREE, THREE, THREE, NONE, NONE, NONE, NONE), strict=True)
    ),
    (KL_TARGET, "community"): {soc: THREE if soc == A2 else NONE for soc in SOCS},
    (KL_TARGET, "documented"): {soc: THREE if soc == A2 else NONE for soc in SOCS},
    # 0.8 says that Ascend 310 has none of these; 1.3 speaks of "310B etc."
    (L1, ""): dict(zip(SOCS, (THREE, THREE, THREE, TWO, TWO, TWO, NONE), strict=True)),
}
CASES = [(*key, soc) for key, takes in TAKES.items() for soc in takes]
NOWHERE = [(*key, soc) for key, takes in TAKES.items() for soc, these in takes.items() if not these]


@cache
def local(soc: str) -> Client:
    return npucall_client.connect("local:", soc=soc)


def refusal(operator: str, variant: str, soc: str, arguments: raw.Arguments) -> DTypeError:
    with pytest.raises(DTypeError) as caught:
        raw.plan(local(soc), operator, variant, arguments)
    assert caught.value.aclnn_status == 161002
    assert caught.value.details["soc"] == soc
    return caught.value


@pytest.mark.parametrize(("operator", "variant", "soc"), CASES)
def test_a_product_takes_the_types_of_its_table_and_no_others(
    operator: str, variant: str, soc: str
) -> None:
    taken = set()
    for dtype in DTYPES:
        spec = TensorSpec(dtype, raw.SHAPE)
        tensors = dict.fromkeys((*raw.INPUTS, raw.OUTPUTS[operator]), spec)
        with suppress(DTypeError):
            raw.plan(local(soc), operator, variant, raw.valid(operator, **tensors))
            taken.add(dtype.name)
    assert taken == TAKES[operator, variant][soc]


@pytest.mark.parametrize("soc", [TRAINING, INFERENCE])
@pytest.mark.parametrize("name", [*raw.INPUTS, "out"])
def test_older_products_blame_the_tensor_that_is_bf16(soc: str, name: str) -> None:
    arguments = raw.valid(KL, **{name: TensorSpec(BF16, raw.SHAPE)})
    error = refusal(KL, "", soc, arguments)
    assert error.parameter == name
    assert "FLOAT or FLOAT16" in str(error)


@pytest.mark.parametrize("soc", [TRAINING, INFERENCE, SMALL])
@pytest.mark.parametrize("name", ["self", "target", "grad_output"])
def test_l1_takes_bf16_beside_float_on_older_products(soc: str, name: str) -> None:
    # Only the promoted type, FLOAT here, has to be in the list.
    arguments = raw.valid(L1, **{name: TensorSpec(BF16, raw.SHAPE)})
    (output,) = raw.plan(local(soc), L1, "", arguments).reply.outputs
    assert output.tensor.dtype == FLOAT.wire


@pytest.mark.parametrize("soc", [TRAINING, INFERENCE, SMALL])
def test_l1_promotes_bf16_and_float16_to_float_on_older_products(soc: str) -> None:
    changes = {"self": TensorSpec(BF16, raw.SHAPE), "target": TensorSpec(FLOAT16, raw.SHAPE)}
    arguments = raw.valid(L1, grad_output=TensorSpec(BF16, raw.SHAPE), **changes)
    assert raw.plan(local(soc), L1, "", arguments).reply.kernel_dtype == FLOAT.wire


@pytest.mark.parametrize(("operator", "variant", "soc"), NOWHERE)
def test_a_product_without_the_operator_refuses_the_first_tensor(
    operator: str, variant: str, soc: str
) -> None:
    error = refusal(operator, variant, soc, raw.valid(operator))
    assert error.parameter == "grad_output"


@pytest.mark.parametrize("soc", [SMALL, OLD])
def test_a_product_without_the_operator_blames_an_uncastable_output_first(soc: str) -> None:
    arguments = raw.valid(KL, out=TensorSpec(INT32, raw.SHAPE))
    assert refusal(KL, "", soc, arguments).parameter == "out"


@pytest.mark.parametrize("variant", ["documented", "community"])
@pytest.mark.parametrize("soc", [A3, A950])
def test_the_refusal_names_the_variant_that_the_product_has(soc: str, variant: str) -> None:
    error = refusal(KL_TARGET, variant, soc, raw.valid(KL_TARGET))
    assert f"({variant})" in str(error)
    assert "has the variant builtin" in str(error)


@pytest.mark.parametrize("soc", [TRAINING, INFERENCE, SMALL, OLD])
def test_the_refusal_names_no_variant_where_the_product_has_none(soc: str) -> None:
    assert "variant" not in str(refusal(KL_TARGET, "documented", soc, raw.valid(KL_TARGET)))


@pytest.mark.parametrize("soc", SOCS)
def test_the_listing_says_where_an_operator_is_available(soc: str) -> None:
    listed = {(each.name, each.variant): each.available for each in local(soc).operators()}
    expected = {key: bool(takes[soc]) for key, takes in TAKES.items()}
    assert {key: listed[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("soc", "legacy"), [("Ascend910", True), ("Ascend310P", True), ("Ascend910B", False)]
)
def test_the_listing_marks_products_that_current_documents_do_not_list(
    client: Client, soc: str, legacy: bool
) -> None:
    listed = {each.soc: each.legacy for each in client.operator(KL).products}
    assert listed[soc] is legacy


def test_ascend910b_without_a_digit_is_the_old_training_part() -> None:
    arguments = raw.valid(KL, self=TensorSpec(BF16, raw.SHAPE))
    assert refusal(KL, "", "Ascend910B", arguments).parameter == "self"
    raw.plan(local("Ascend910B4-1"), KL, "", arguments)
