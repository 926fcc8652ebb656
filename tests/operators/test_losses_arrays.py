"""What holds for the gradients of the element-wise losses alike: layouts, dtypes, products."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from npucall.compute.blocks import Work
from npucall.declare.call import Call
from npucall.declare.prepare import prepare
from npucall.dtypes import DTYPES, FLOAT
from npucall.errors import DTypeError
from npucall.operators import CATALOGUE
from npucall.products import (
    A2,
    A3,
    ASCEND_310,
    ASCEND_310B,
    ASCEND_310P,
    ASCEND_910,
    ASCEND_950,
    Product,
)
from npucall.tensors import TensorSpec

from .gradients import FLOATS, LOCAL, title
from .losses import (
    ATTRIBUTES,
    BCE_LOGITS_TARGET,
    LOGIT,
    MSE,
    SMOOTH_L1,
    SOFT_MARGIN,
    drawn,
    run,
    wide,
)

if TYPE_CHECKING:
    from npucall_client import Client

each = pytest.mark.parametrize("operator", ATTRIBUTES, ids=title)
INPUTS = [(operator, p.name) for operator in ATTRIBUTES for p in operator.inputs]

LAYOUTS = {
    "Fortran": np.asfortranarray,
    "every second column": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "behind a gap": lambda a: np.pad(a, 1)[1:-1, 1:-1],
}
NEWER, OLDER = (A2, A3, ASCEND_950), (ASCEND_910, ASCEND_310P, ASCEND_310B)
# operators.md 2.5: what documents name beside A2 and A3, and where the software has none
DOCUMENTED = {operator: {ASCEND_950, ASCEND_310P, ASCEND_910} for operator in ATTRIBUTES} | {
    MSE: {ASCEND_950, ASCEND_310P},
    SOFT_MARGIN: {ASCEND_950, ASCEND_910},
    LOGIT: {ASCEND_950},
    BCE_LOGITS_TARGET: set(),
}
WITHOUT_LEGACY = (LOGIT, BCE_LOGITS_TARGET)


@pytest.mark.parametrize(("operator", "name"), INPUTS, ids=title)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("keep_layout", [False, True])
def test_the_memory_order_of_an_input_does_not_show(
    operator: Any, name: str, layout: str, keep_layout: bool
) -> None:
    tensors = drawn(operator, (5, 7), np.float32)
    given = {**tensors, name: LAYOUTS[layout](tensors[name])}
    found = run(operator, given, client=LOCAL.options(keep_layout=keep_layout))
    assert found.tobytes() == run(operator, tensors).tobytes()


@each
@pytest.mark.parametrize("order", ["C", "F"])
def test_the_common_memory_order_of_all_tensors_does_not_show(operator: Any, order: str) -> None:
    tensors = drawn(operator, (5, 7), np.float32)
    given = {name: np.array(array, order=order) for name, array in tensors.items()}
    out = np.empty((5, 7), np.float32, order)
    run(operator, given, out, LOCAL.options(keep_layout=True))
    np.testing.assert_array_equal(out, run(operator, tensors))


@each
@pytest.mark.parametrize("keep_layout", [False, True])
def test_an_output_with_gaps_is_written_between_them(operator: Any, keep_layout: bool) -> None:
    tensors = drawn(operator, (5, 7), np.float32)
    memory = np.full((7, 10), 99, np.float32)
    target = memory.T[::2]  # (5, 7), in Fortran's order and with a step
    run(operator, tensors, target, LOCAL.options(keep_layout=keep_layout))
    np.testing.assert_array_equal(target, run(operator, tensors))
    assert (memory[:, 1::2] == 99).all()


@pytest.mark.parametrize(("operator", "name"), INPUTS, ids=title)
def test_an_input_with_strides_of_0_is_read_as_if_it_were_full(operator: Any, name: str) -> None:
    tensors = drawn(operator, (5, 7), np.float32)
    stretched = np.broadcast_to(np.float32(0.25), (5, 7))
    found = run(operator, {**tensors, name: stretched}, client=LOCAL.options(keep_layout=True))
    expected = run(operator, {**tensors, name: stretched.copy()})
    np.testing.assert_array_equal(found, expected)


@each
@pytest.mark.parametrize("shape", [(), (1,), (2, 1, 3), (2,) * 8])
def test_every_rank_up_to_8_is_computed_alike(operator: Any, shape: tuple[int, ...]) -> None:
    tensors = drawn(operator, shape, np.float32)
    found = run(operator, tensors)
    flat = run(operator, {name: array.reshape(-1) for name, array in tensors.items()})
    assert found.shape == shape
    assert found.tobytes() == flat.tobytes()


@each
@pytest.mark.parametrize("dtype", FLOATS, ids=title)
def test_short_floats_are_computed_as_float32_and_rounded_once(operator: Any, dtype: Any) -> None:
    tensors = drawn(operator, (40, 50), dtype)
    single = {name: array.astype(np.float32) for name, array in tensors.items()}
    found = run(operator, tensors)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, run(operator, single).astype(dtype))


@each
@pytest.mark.parametrize("name", ["block", "and a bit"])
def test_a_mean_counts_all_elements_and_not_those_of_a_block(operator: Any, name: str) -> None:
    count = Work.block if name == "block" else Work.block + 3
    tensors = drawn(operator, (count,), np.float32)
    found = run(operator, tensors)
    few = run(operator, {n: a[:8] for n, a in tensors.items()})
    scale = 8 / count if "reduction" in ATTRIBUTES[operator] else 1
    np.testing.assert_allclose(found[:8], few * scale, rtol=1e-6)


@each
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4)])
def test_empty_tensors_give_an_empty_output(operator: Any, shape: tuple[int, ...]) -> None:
    found = run(operator, drawn(operator, shape, np.float16))
    assert (found.shape, found.dtype) == (shape, np.float16)


@each
def test_devices_answer_alike(operator: Any, client: Client) -> None:
    tensors = drawn(operator, (5, 7), np.float16)
    found = run(operator, tensors, client=client)
    assert found.tobytes() == run(operator, tensors).tobytes()


@each
@pytest.mark.parametrize("of", [*NEWER, *OLDER, ASCEND_310], ids=lambda product: product.soc)
def test_products_take_the_dtypes_of_the_documents(operator: Any, of: Product) -> None:
    expected = {"FLOAT", "FLOAT16", "BF16"} if of in NEWER else {"FLOAT", "FLOAT16"}
    if of is ASCEND_310 or (operator in WITHOUT_LEGACY and of in OLDER):
        expected = set()
    if operator is BCE_LOGITS_TARGET and of is ASCEND_950:
        expected = set()
    assert {dtype.name for dtype in DTYPES if passes(operator, dtype, of)} == expected


@each
def test_products_that_documents_leave_out_are_listed_as_legacy(operator: Any) -> None:
    assert set(operator.products) == {A2, A3} | DOCUMENTED[operator]
    left_out = set() if operator in WITHOUT_LEGACY else {*OLDER} - DOCUMENTED[operator]
    assert set(operator.legacy) == left_out


@each
def test_a_product_without_the_operator_is_named(operator: Any) -> None:
    with pytest.raises(DTypeError, match=f"expected a product that has {operator.name}") as caught:
        prepare(called(operator, FLOAT), ASCEND_310, CATALOGUE)
    assert caught.value.aclnn_status == 161002


@pytest.mark.parametrize(
    "operator", [op for op in ATTRIBUTES if "reduction" in ATTRIBUTES[op]], ids=title
)
def test_mean_is_the_reduction_unless_one_is_given(operator: Any) -> None:
    tensors = drawn(operator, (4, 6), np.float32)
    given = {name: value for name, value in ATTRIBUTES[operator].items() if name != "reduction"}
    np.testing.assert_array_equal(LOCAL.run(operator, **tensors, **given), run(operator, tensors))


@pytest.mark.parametrize("operator", [MSE, SMOOTH_L1, SOFT_MARGIN], ids=title)
@pytest.mark.parametrize("dtype", FLOATS, ids=title)
def test_the_result_is_converted_to_any_float(operator: Any, dtype: Any) -> None:
    tensors = drawn(operator, (4, 6), np.float16)
    found = run(operator, tensors, np.empty((4, 6), dtype))
    np.testing.assert_array_equal(found, run(operator, tensors).astype(dtype))


@each
def test_float64_has_no_place_in_a_call(operator: Any) -> None:
    with pytest.raises(DTypeError):
        run(operator, wide(drawn(operator, (4, 6))))


def called(operator: Any, dtype: Any) -> Call:
    names = [p.name for p in (*operator.inputs, *operator.outputs)]
    arguments = dict.fromkeys(names, TensorSpec(dtype, (2, 3))) | ATTRIBUTES[operator]
    return Call(operator, arguments, tuple(p.name for p in operator.inputs))


def passes(operator: Any, dtype: Any, of: Product) -> bool:
    with suppress(DTypeError):
        prepare(called(operator, dtype), of, CATALOGUE)
        return True
    return False
