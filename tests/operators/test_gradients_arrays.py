"""What holds for the gradients of softmax and the smooth activations alike: layouts, products."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from npucall.declare.call import Call
from npucall.declare.prepare import prepare
from npucall.dtypes import BY_NUMPY, DTYPES
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
    product_of,
)
from npucall.tensors import TensorSpec

from .gradients import (
    ATTRIBUTES,
    FLOATS,
    LOCAL,
    LOG_SOFTMAX,
    SIGMOID,
    SILU,
    SOFTMAX,
    TANH,
    THRESHOLD,
    drawn,
    run,
    tensors,
    title,
)

if TYPE_CHECKING:
    from npucall_client import Client

each = pytest.mark.parametrize("operator", ATTRIBUTES, ids=title)

LAYOUTS = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "every second column": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "behind a gap": lambda a: np.pad(a, 1)[1:-1, 1:-1],
}
NEWER, OLDER = (A2, A3, ASCEND_950), (ASCEND_910, ASCEND_310P, ASCEND_310B)
THREE, TWO = {"FLOAT", "FLOAT16", "BF16"}, {"FLOAT", "FLOAT16"}
# operators.md 2.1 and 2.2: what a product takes besides for all tensors of one dtype.
BESIDES: dict[Any, set[str]] = {
    SIGMOID: {"DOUBLE", "COMPLEX64", "COMPLEX128"},
    TANH: {"DOUBLE"},
    THRESHOLD: {"INT32", "INT8", "UINT8"},
}


@each
@pytest.mark.parametrize("of_x", LAYOUTS)
@pytest.mark.parametrize("of_g", LAYOUTS)
def test_the_memory_order_of_the_inputs_does_not_show(operator: Any, of_g: str, of_x: str) -> None:
    g, x = drawn((5, 7), (5, 7), dtype=np.float32)
    given = LAYOUTS[of_g](g), LAYOUTS[of_x](x)
    expected = run(operator, g, x, **ATTRIBUTES[operator])
    for client in (LOCAL, LOCAL.options(keep_layout=True)):
        found = run(operator, *given, client=client, **ATTRIBUTES[operator])
        assert found.tobytes() == expected.tobytes()


@each
@pytest.mark.parametrize("keep_layout", [False, True])
def test_an_output_with_gaps_is_written_between_them(operator: Any, keep_layout: bool) -> None:
    g, x = drawn((5, 7), (5, 7), dtype=np.float32)
    memory = np.full((7, 10), 99, np.float32)
    target = memory.T[::2]  # (5, 7), in Fortran's order and with a step
    client = LOCAL.options(keep_layout=keep_layout)
    run(operator, g, x, target, client, **ATTRIBUTES[operator])
    np.testing.assert_array_equal(target, run(operator, g, x, **ATTRIBUTES[operator]))
    assert (memory[:, 1::2] == 99).all()


@each
def test_a_gradient_with_strides_of_0_is_read_as_if_it_were_full(operator: Any) -> None:
    (x,) = drawn((5, 7), dtype=np.float32)
    stretched = np.broadcast_to(np.float32(1.25), (5, 7))
    np.testing.assert_array_equal(
        run(operator, stretched, x, **ATTRIBUTES[operator]),
        run(operator, stretched.copy(), x, **ATTRIBUTES[operator]),
    )


@each
@pytest.mark.parametrize("shape", [(1,), (2, 1, 3), (2,) * 8])
def test_every_rank_up_to_8_is_computed_alike(operator: Any, shape: tuple[int, ...]) -> None:
    g, x = drawn(shape, shape, dtype=np.float32)
    found = run(operator, g, x, **ATTRIBUTES[operator])
    flat = (shape[0], -1) if "dim" in ATTRIBUTES[operator] else -1  # dim 0 stays as it is
    reshaped = run(operator, g.reshape(flat), x.reshape(flat), **ATTRIBUTES[operator])
    assert found.shape == shape
    assert found.tobytes() == reshaped.tobytes()


@each
@pytest.mark.parametrize("dtype", FLOATS, ids=title)
def test_short_floats_are_computed_as_float32_and_rounded_once(operator: Any, dtype: Any) -> None:
    g, x = drawn((40, 50), (40, 50), dtype=dtype)
    single = run(operator, *(a.astype(np.float32) for a in (g, x)), **ATTRIBUTES[operator])
    found = run(operator, g, x, **ATTRIBUTES[operator])
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, single.astype(dtype))


@each
@pytest.mark.parametrize("soc", ["Ascend910B1", "Ascend950PR_9589", "Ascend310P3"])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4)])
def test_empty_tensors_give_an_empty_output(
    operator: Any, shape: tuple[int, ...], soc: str
) -> None:
    call = called(operator, *drawn(shape, shape, dtype=np.float16))
    prepared = prepare(call, product_of(soc), CATALOGUE)
    (output,) = prepared.outputs.values()
    assert (output.shape, output.dtype.numpy, prepared.done) == (shape, np.float16, True)


@each
def test_an_empty_call_is_answered(operator: Any, client: Client) -> None:
    g, x = drawn((3, 0), (3, 0), dtype=np.float16)
    found = run(operator, g, x, client=client, **ATTRIBUTES[operator])
    assert (found.shape, found.dtype) == ((3, 0), np.float16)


@each
@pytest.mark.parametrize("of", [*NEWER, *OLDER, ASCEND_310], ids=lambda product: product.soc)
def test_products_take_the_dtypes_of_the_documents(operator: Any, of: Product) -> None:
    expected = THREE if of in NEWER else TWO if of in OLDER else set()
    if expected:
        expected = expected | BESIDES.get(operator, set())
    assert {dtype.name for dtype in DTYPES if passes(operator, dtype, of)} == expected


@each
def test_products_that_documents_leave_out_are_listed_as_legacy(operator: Any) -> None:
    documented = {*NEWER, ASCEND_910} | ({ASCEND_310P} if operator is not SILU else set())
    assert set(operator.products) == documented
    assert set(operator.legacy) == {*OLDER} - documented


@pytest.mark.parametrize("operator", [SOFTMAX, LOG_SOFTMAX], ids=title)
@pytest.mark.parametrize("dtype", FLOATS, ids=title)
def test_the_gradient_of_softmax_is_converted_to_any_float(operator: Any, dtype: Any) -> None:
    g, x = drawn((4, 6), (4, 6), dtype=np.float16)
    found = run(operator, g, x, np.empty((4, 6), dtype), dim=1)
    np.testing.assert_array_equal(found, run(operator, g, x, dim=1).astype(dtype))


def called(operator: Any, g: Any, x: Any) -> Call:
    specs = {
        name: TensorSpec(BY_NUMPY[array.dtype], array.shape)
        for name, array in tensors(operator, g, x).items()
    }
    return Call(operator, specs | ATTRIBUTES[operator], tuple(specs))


def passes(operator: Any, dtype: Any, of: Product) -> bool:
    names = [p.name for p in (*operator.inputs, *operator.outputs)]
    arguments = dict.fromkeys(names, TensorSpec(dtype, (2, 3))) | ATTRIBUTES[operator]
    call = Call(operator, arguments, tuple(names[:2]))
    with suppress(DTypeError):
        prepare(call, of, CATALOGUE)
        return True
    return False
