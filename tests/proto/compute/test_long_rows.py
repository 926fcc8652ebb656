"""Rows longer than a block: computed in pieces, with the results of complete rows."""

from typing import Any

import ml_dtypes
import numpy as np
from tests.proto import computing
from tests.rows import each

from npucall.compute import evaluate
from npucall.compute.helpers import Helpers
from npucall.declare import rules
from npucall.declare.call import Call
from npucall.declare.catalogue import Catalogue
from npucall.declare.cuts import BLOCK
from npucall.declare.declaration import operator
from npucall.declare.domain import rows
from npucall.declare.facts import Facts
from npucall.declare.parameters import Attribute, Input, Kind, Output
from npucall.declare.prepare import Prepared, prepare
from npucall.dtypes import BY_NUMPY, FLOATS
from npucall.operators import CATALOGUE
from npucall.products import A2
from npucall.tensors import TensorSpec

LONG = 2 * BLOCK + 5
HALF, BF16 = np.float16, ml_dtypes.bfloat16
SOFTMAX_BACKWARD = "aclnnSoftmaxBackward"
FORWARDS = ("aclnnSoftmax", "aclnnLogSoftmax")
INPUTS = {
    SOFTMAX_BACKWARD: ("grad_output", "output"),
    "aclnnLogSoftmaxBackward": ("grad_output", "output"),
    **dict.fromkeys(FORWARDS, ("self",)),
}
SHAPES = [((LONG,), -1), ((3, LONG), 1), ((LONG, 2), 0), ((2, LONG, 3), 1)]
TRIED = [
    *((*each, dtype) for each in SHAPES[:2] for dtype in (np.float32, HALF, BF16)),
    (*SHAPES[2], np.float32),
    (*SHAPES[3], BF16),
]


def call_of(name: str, tensors: dict[str, Any], **attributes: Any) -> Prepared:
    specs = [TensorSpec(BY_NUMPY[array.dtype], array.shape) for array in tensors.values()]
    return computing.call_of(CATALOGUE.find(name), *specs, **attributes)


def run(call: Prepared, tensors: dict[str, Any], **more: Any) -> bytes:
    storages = {n: a.tobytes() for n, a in tensors.items()}
    (answer,) = evaluate.run(call, storages, **more)
    return bytes(answer)


def computed(name: str, tensors: dict[str, Any], shape: tuple[int, ...], dim: int) -> Any:
    """The output of a call whose tensors are of one dtype."""
    (dtype,) = {array.dtype for array in tensors.values()}
    return np.frombuffer(run(call_of(name, tensors, dim=dim), tensors), dtype).reshape(shape)


def drawn(shape: tuple[int, ...], dtype: Any, *names: str, most: float = 1) -> dict[str, Any]:
    random = np.random.default_rng(7)
    return {name: random.uniform(-most, most, shape).astype(dtype) for name in names}


def exact(name: str, tensors: dict[str, Any], dim: int) -> Any:
    wide = [array.astype(np.float64) for array in tensors.values()]
    if name in FORWARDS:
        below = wide[0] - wide[0].max(dim, keepdims=True)
        result = below - np.log(np.exp(below).sum(dim, keepdims=True))
        return result if name == "aclnnLogSoftmax" else np.exp(result)
    grad, output = wide
    if name == SOFTMAX_BACKWARD:
        return output * (grad - (grad * output).sum(dim, keepdims=True))
    return grad - np.exp(output) * grad.sum(dim, keepdims=True)


@each("name", INPUTS)
@each(("shape", "dim", "dtype"), TRIED)
def test_maximum_and_sum_of_a_row_are_those_of_all_its_pieces(
    name: str, dtype: Any, shape: tuple[int, ...], dim: int
) -> None:
    tensors = drawn(shape, dtype, *INPUTS[name], most=4 if name in FORWARDS else 1)
    found, expected = computed(name, tensors, shape, dim), exact(name, tensors, dim)
    digits = {np.float32: 2**-21, HALF: 2**-10, BF16: 2**-7}[dtype]
    least = digits * np.abs(expected).max()
    if name in FORWARDS:
        digits, least = max(digits, 2**-20), 2**-24 if dtype == HALF else 0
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=digits, atol=least)


@each("name", INPUTS)
@each("shape", [(4, 5 * BLOCK + 1), (3 * BLOCK, 2)])
def test_helpers_do_not_change_a_bit_of_a_long_row(
    name: str, shape: tuple[int, int], helpers: Helpers
) -> None:
    tensors = drawn(shape, np.float32, *INPUTS[name])
    call = call_of(name, tensors, dim=int(np.argmax(shape)))
    alone = run(call, tensors)
    assert all(run(call, tensors, helpers=helpers) == alone for _ in range(5))


def test_a_row_of_two_blocks_is_complete_and_one_of_an_element_more_has_three_pieces() -> None:
    seen: list[int] = []

    def summed(_: Any, x: Any) -> Any:
        seen.append(x.shape[-1])
        return x

    def formula(facts: Any, x: Any, dim: int) -> Any:
        return x - facts.row_sum(x)

    tried = operator(
        "aclnnTried",
        Input("x", "a row"),
        Attribute("dim", Kind.INT64, "along which rows lie"),
        Output("out", "result", shape="x", dtype="x"),
        products={A2: FLOATS},
        checks=(rules.present("x"),),
        kernel_dtype=rules.dtype_of("x"),
        over=rows("dim", sum_of=summed),
        area="arithmetic",
        source="this test",
    )(formula)
    for length, pieces in ((2 * BLOCK, []), (2 * BLOCK + 1, [BLOCK, BLOCK, 1])):
        seen.clear()
        spec = TensorSpec(BY_NUMPY[np.dtype(np.float32)], (length,))
        call = prepare(Call(tried, {"x": spec, "dim": 0}, ("x",)), A2, Catalogue([tried]))
        (answer,) = evaluate.run(call, {"x": np.ones(length, np.float32).tobytes()})
        assert set(np.frombuffer(answer, np.float32)) == {np.float32(1 - length)}
        assert seen == pieces


@each("dtype", [np.float32, HALF])
@each(("shape", "dim"), [((2 * LONG,), 0), ((3, 2 * LONG), 1), ((2 * LONG, 2), 0)])
def test_a_long_row_of_two_halves_has_the_bits_of_rows_of_two(
    dtype: Any, shape: tuple[int, ...], dim: int
) -> None:
    """Which are the same memory in another shape."""
    whole = drawn(shape, dtype, "self")
    half = tuple(n // 2 if axis == dim else n for axis, n in enumerate(shape))
    grad = drawn(half, dtype, "grad_out")
    for name, given, out in ("aclnnGlu", whole, half), ("aclnnGluBackward", grad | whole, shape):
        folded = (*shape[:dim], -1, LONG, *shape[dim + 1 :])
        short = {n: array.reshape(folded) for n, array in given.items()}
        found, expected = (computed(name, tensors, out, dim) for tensors in (given, short))
        np.testing.assert_array_equal(found, expected)


def test_a_long_row_is_written_between_gaps_that_come_back_as_they_were() -> None:
    tensors = drawn((LONG,), np.float32, "grad_output", "output")
    dense = computed(SOFTMAX_BACKWARD, tensors, (LONG,), 0)
    out = TensorSpec(BY_NUMPY[np.dtype(np.float32)], (LONG,), (2,))
    call = call_of(SOFTMAX_BACKWARD, tensors, out=out, dim=0)
    sent = np.full(2 * LONG - 1, 7, np.float32)
    found = np.frombuffer(run(call, tensors | {"out": sent}), np.float32)
    np.testing.assert_array_equal(found[::2], dense)
    assert (found[1::2] == 7).all()


@each("name", FORWARDS)
@each("place", [0, BLOCK - 1, BLOCK, LONG - 1])
def test_a_maximum_in_any_piece_counts_for_all_of_its_row_alone(name: str, place: int) -> None:
    x = np.zeros((2, LONG), np.float32)
    x[1, place] = 3e38
    found = computed(name, {"self": x}, x.shape, 1)
    even, far = {"aclnnSoftmax": (1 / LONG, 0), "aclnnLogSoftmax": (-np.log(LONG), -3e38)}[name]
    np.testing.assert_allclose(found[0], even, rtol=1e-6)
    np.testing.assert_allclose(np.delete(found[1], place), far, rtol=1e-6)
    assert found[1, place] == {"aclnnSoftmax": 1, "aclnnLogSoftmax": 0}[name]


@each("name", FORWARDS)
@each("number", [np.nan, np.inf])
def test_nan_and_infinity_in_one_piece_make_all_of_their_row_nan(name: str, number: float) -> None:
    x = np.zeros((2, LONG), np.float32)
    x[0, BLOCK + 1] = number
    found = computed(name, {"self": x}, x.shape, 1)
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1]).all()


@each("name", FORWARDS)
def test_a_piece_of_minus_infinity_alone_counts_nothing(name: str) -> None:
    x = np.full((2, LONG), -np.inf, np.float32)
    x[0, -4:] = 7
    found = computed(name, {"self": x}, x.shape, 1)
    ends = {"aclnnSoftmax": (0, 0.25), "aclnnLogSoftmax": (-np.inf, np.float32(-np.log(4)))}[name]
    assert set(found[0, :-4]) == {ends[0]}
    assert set(found[0, -4:]) == {ends[1]}
    assert np.isnan(found[1]).all()


@each("of", [np.float32, HALF, BF16])
def test_a_long_row_is_rounded_to_the_dtype_of_its_output_first(of: Any) -> None:
    x = np.random.default_rng(9).normal(0, 3, LONG).astype(np.float32)
    out = TensorSpec(BY_NUMPY[np.dtype(of)], (LONG,))
    sent = {"self": x, "out": np.zeros(LONG, of)}
    converted = run(call_of("aclnnLogSoftmax", {"self": x}, dim=0, out=out), sent)
    short = {"self": x.astype(of)}
    assert converted == run(call_of("aclnnLogSoftmax", short, dim=0), short)


@each("length", [1, 2, 31, 32, 33])
@each("count", [1, 255, 256, 1000])
def test_the_maxima_of_short_rows_are_those_of_numpy(length: int, count: int) -> None:
    x = np.random.default_rng(5).normal(0, 3, (count, length)).astype(np.float32)
    x[count // 3, 0] = np.inf
    x[count // 2, length // 2] = np.nan
    found = Facts({}, x.dtype).row_max(x)
    np.testing.assert_array_equal(found, x.max(-1, keepdims=True))
    assert np.isnan(found[count // 2])
