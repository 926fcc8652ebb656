"""What holds for the gradient of every activation: layouts, ranks, dtypes, empties, products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.declare.call import Call
from npucall.declare.prepare import prepare
from npucall.dtypes import BF16, BY_NUMPY, DOUBLE, DTYPES, FLOAT, FLOAT16
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
    PRODUCTS,
    Product,
)
from npucall.tensors import TensorSpec

from .activations import FIRST, LOCAL, WITH_DOUBLE, Activation, short, taken

each = pytest.mark.parametrize("activation", FIRST, ids=str)
EACH_DTYPE = [(activation, dtype) for activation in FIRST for dtype in taken(activation)]

LAYOUTS = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "every second column": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "every third row from the second": lambda a: np.repeat(a, 3, axis=0)[1::3],
    "backwards": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "behind a gap": lambda a: np.pad(a, 1)[1:-1, 1:-1],
}
# operators.md 2.5; the products that documents name beside A2, A3 and 950
DOCUMENTED = {
    "aclnnLeakyReluBackward": {ASCEND_310P, ASCEND_910},
    "aclnnEluBackward": {ASCEND_310P, ASCEND_910},
    "aclnnHardswishBackward": {ASCEND_910},
    "aclnnHardswishBackwardV2": {ASCEND_910},
    "aclnnHardsigmoidBackward": {ASCEND_310P, ASCEND_910},
    "aclnnHardtanhBackward": {ASCEND_310P, ASCEND_910, ASCEND_310B},
    "aclnnSoftplusBackward": {ASCEND_910},
}


def drawn(shape: tuple[int, ...], dtype: Any = np.float32) -> tuple[Any, Any]:
    random = np.random.default_rng(3)
    g, x = (np.asarray(random.integers(-320, 320, shape) / 64) for _ in range(2))
    return g.astype(dtype), x.astype(dtype)


@each
@pytest.mark.parametrize("of_x", LAYOUTS)
@pytest.mark.parametrize("of_g", LAYOUTS)
def test_the_memory_order_of_the_inputs_does_not_show(
    activation: Activation, of_g: str, of_x: str
) -> None:
    g, x = drawn((5, 7))
    found = activation.run(LAYOUTS[of_g](g), LAYOUTS[of_x](x))
    assert found.tobytes() == activation.run(g, x).tobytes()


@each
@pytest.mark.parametrize("layout", ["Fortran", "every second column", "behind a gap"])
def test_strides_that_reach_the_device_do_not_show(activation: Activation, layout: str) -> None:
    g, x = drawn((5, 7))
    tensors = activation.tensors(LAYOUTS[layout](g), LAYOUTS[layout](x))
    strided = LOCAL.options(keep_layout=True)
    found = strided.run(activation.operator, **tensors, **activation.attributes)
    assert found.tobytes() == activation.run(g, x).tobytes()


@each
@pytest.mark.parametrize("keep_layout", [False, True])
def test_an_output_with_gaps_is_written_between_them(
    activation: Activation, keep_layout: bool
) -> None:
    g, x = drawn((5, 7))
    memory = np.full((7, 10), 99, np.float32)
    target = memory.T[::2]  # (5, 7), strides of both memory orders' kind
    name = activation.operator.outputs[0].name
    client = LOCAL.options(outputs={name: target}, keep_layout=keep_layout)
    client.run(activation.operator, **activation.tensors(g, x), **activation.attributes)
    np.testing.assert_array_equal(target, activation.run(g, x))
    assert (memory[:, 1::2] == 99).all()


@each
def test_a_stretched_gradient_is_read_as_if_it_were_full(activation: Activation) -> None:
    _, x = drawn((5, 7))
    full = np.full((5, 7), 1.25, np.float32)
    stretched = np.broadcast_to(np.float32(1.25), (5, 7))
    np.testing.assert_array_equal(activation.run(stretched, x), activation.run(full, x))


@each
@pytest.mark.parametrize("shape", [(), (1,), (2, 1, 3), (2,) * 8])
def test_every_rank_up_to_8_is_computed_element_by_element(
    activation: Activation, shape: tuple[int, ...]
) -> None:
    g, x = drawn(shape)
    found = activation.run(g, x)
    assert found.shape == shape
    assert found.tobytes() == activation.run(g.reshape(-1), x.reshape(-1)).tobytes()


@pytest.mark.parametrize(("activation", "dtype"), EACH_DTYPE, ids=str)
def test_every_dtype_gives_an_output_of_its_own(activation: Activation, dtype: Any) -> None:
    g, x = drawn((4, 6), dtype)
    found = activation.run(g, x)
    assert found.dtype == dtype
    single = activation.run(g.astype(np.float32), x.astype(np.float32)).astype(np.float64)
    np.testing.assert_allclose(found.astype(np.float64), single, rtol=2**-7)


@pytest.mark.parametrize("dtype", [np.float16, FLOAT.numpy, BF16.numpy], ids=short)
@each
def test_short_floats_are_computed_in_float32_and_rounded_once(
    activation: Activation, dtype: Any
) -> None:
    g, x = drawn((40, 50), dtype)
    single = activation.run(g.astype(np.float32), x.astype(np.float32))
    np.testing.assert_array_equal(activation.run(g, x), single.astype(dtype))


@each
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4)])
def test_empty_tensors_give_an_empty_output(activation: Activation, shape: tuple[int, ...]) -> None:
    found = activation.run(*drawn(shape, np.float16))
    assert (found.shape, found.dtype) == (shape, np.float16)


@each
@pytest.mark.parametrize(("shape", "done"), [((0, 3), True), ((2, 3), False), ((), False)])
def test_the_checks_end_where_the_tensors_are_empty(
    activation: Activation, shape: tuple[int, ...], done: bool
) -> None:
    tensors = {p.name: TensorSpec(FLOAT, shape) for p in activation.operator.inputs}
    call = Call(activation.operator, {**tensors, **activation.attributes}, tuple(tensors))
    assert prepare(call, A2, CATALOGUE).done is done


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.soc)
@each
def test_products_take_the_dtypes_of_the_documents(
    activation: Activation, product: Product
) -> None:
    answers = {dtype: status(activation, product, dtype) for dtype in DTYPES}
    accepted = {dtype for dtype, answer in answers.items() if answer is None}
    expected = {FLOAT, FLOAT16} if product is not ASCEND_310 else set()
    if product in (A2, A3, ASCEND_950):
        expected |= {BF16}
    if activation.operator in WITH_DOUBLE and expected:
        expected |= {DOUBLE}
    assert accepted == expected
    assert {answers[dtype] for dtype in DTYPES if dtype not in expected} == {161002}


def status(activation: Activation, product: Product, dtype: Any) -> int | None:
    """The aclnn status of a dtype that all tensors have; None where it passes."""
    operator = activation.operator
    tensors = {p.name: TensorSpec(dtype, (2, 3)) for p in (*operator.inputs, *operator.outputs)}
    inputs = tuple(p.name for p in operator.inputs)
    call = Call(operator, {**tensors, **activation.attributes}, inputs)
    try:
        prepare(call, product, CATALOGUE)
    except DTypeError as error:
        return error.aclnn_status
    return None


@each
def test_products_that_documents_leave_out_are_listed_as_legacy(activation: Activation) -> None:
    operator = activation.operator
    documented = DOCUMENTED[operator.name] | {A2, A3, ASCEND_950}
    assert set(operator.products) == documented
    assert set(operator.legacy) == {ASCEND_910, ASCEND_310P, ASCEND_310B} - documented


@each
def test_every_numpy_number_serves_as_an_aclscalar(activation: Activation) -> None:
    g, x = drawn((2, 3))
    names = [a.name for a in activation.operator.attributes if a.kind.value.endswith("*")]
    for kind in (np.float64, np.float32, np.float16, BF16.numpy.type):
        numbers = {name: kind(activation.attributes[name]) for name in names}
        given = {**activation.attributes, **numbers}
        found = LOCAL.run(activation.operator, **activation.tensors(g, x), **given)
        np.testing.assert_array_equal(found, activation.run(g, x))
        assert all(number.dtype in BY_NUMPY for number in numbers.values())
