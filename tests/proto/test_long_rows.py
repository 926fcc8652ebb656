"""Rows longer than a block: computed in pieces, with the results of complete rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from tests.rows import each

from npucall.compute import evaluate
from npucall.compute.helpers import Helpers
from npucall.declare import rules
from npucall.declare.call import Call
from npucall.declare.catalogue import Catalogue
from npucall.declare.cuts import BLOCK
from npucall.declare.declaration import operator
from npucall.declare.facts import Facts
from npucall.declare.over import rows
from npucall.declare.parameters import Attribute, Input, Kind, Output
from npucall.declare.prepare import prepare
from npucall.dtypes import BY_NUMPY, FLOATS
from npucall.operators import CATALOGUE
from npucall.products import A2
from npucall.tensors import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall.declare.prepare import Prepared

LONG = 2 * BLOCK + 5
HALF, BF16 = np.float16, ml_dtypes.bfloat16
SOFTMAX, LOG_SOFTMAX = "aclnnSoftmaxBackward", "aclnnLogSoftmaxBackward"
FORWARDS = ("aclnnSoftmax", "aclnnLogSoftmax")
SHAPES = [((LONG,), -1), ((3, LONG), 1), ((LONG, 2), 0), ((2, LONG, 3), 1)]


@pytest.fixture
def helpers() -> Iterator[Helpers]:
    pool = Helpers(3)
    yield pool
    pool.close()


def call_of(name: str, tensors: dict[str, Any], **attributes: Any) -> Prepared:
    specs = {n: TensorSpec(BY_NUMPY[a.dtype], a.shape) for n, a in tensors.items()}
    call = Call(CATALOGUE.find(name), {**specs, **attributes}, tuple(tensors))
    return prepare(call, A2, CATALOGUE)


def run(call: Prepared, tensors: dict[str, Any], **more: Any) -> bytes:
    storages = {n: a.tobytes() for n, a in tensors.items()}
    (answer,) = evaluate.run(call, storages, **more)
    return bytes(answer)


def drawn(shape: tuple[int, ...], dtype: Any, *names: str) -> dict[str, Any]:
    random = np.random.default_rng(7)
    return {name: random.uniform(-1, 1, shape).astype(dtype) for name in names}


def expected(name: str, tensors: dict[str, Any], dim: int) -> Any:
    grad, output = (tensors[n].astype(np.float64) for n in ("grad_output", "output"))
    if name == SOFTMAX:
        return output * (grad - (grad * output).sum(dim, keepdims=True))
    return grad - np.exp(output) * grad.sum(dim, keepdims=True)


@each("name", [SOFTMAX, LOG_SOFTMAX])
@each("dtype", [np.float32, HALF, BF16])
@each(("shape", "dim"), SHAPES)
def test_the_sum_of_a_row_is_that_of_all_its_pieces(
    name: str, dtype: Any, shape: tuple[int, ...], dim: int
) -> None:
    tensors = drawn(shape, dtype, "grad_output", "output")
    found = np.frombuffer(run(call_of(name, tensors, dim=dim), tensors), dtype).reshape(shape)
    exact = expected(name, tensors, dim)
    digits = {np.float32: 2**-21, HALF: 2**-10, BF16: 2**-7}[dtype]
    np.testing.assert_allclose(
        found.astype(np.float64), exact, rtol=digits, atol=digits * np.abs(exact).max()
    )


@each("name", [SOFTMAX, LOG_SOFTMAX])
def test_helpers_do_not_change_a_bit_of_a_long_row(name: str, helpers: Helpers) -> None:
    tensors = drawn((4, 5 * BLOCK + 1), np.float32, "grad_output", "output")
    call = call_of(name, tensors, dim=1)
    alone = run(call, tensors)
    assert all(run(call, tensors, helpers=helpers) == alone for _ in range(5))


def test_each_of_many_long_rows_has_a_sum_of_its_own() -> None:
    tensors = drawn((3, LONG), np.float32, "grad_output", "output")
    together = run(call_of(SOFTMAX, tensors, dim=1), tensors)
    parts = [{n: a[row] for n, a in tensors.items()} for row in range(3)]
    assert together == b"".join(run(call_of(SOFTMAX, part, dim=0), part) for part in parts)


def test_a_row_of_two_blocks_is_complete_and_one_of_an_element_more_has_three_pieces() -> None:
    seen: list[int] = []

    def summed(_: Any, x: Any) -> Any:
        seen.append(x.shape[-1])
        return x

    def formula(facts: Any, x: Any, dim: int) -> Any:
        return x - facts.row_sum(x)

    declare = operator(
        "aclnnTried",
        Input("x", "a row"),
        Attribute("dim", Kind.INT64, "along which rows lie"),
        Output("out", "result", shape="x", dtype="x"),
        products={A2: FLOATS},
        checks=(rules.present("x"),),
        kernel_dtype=rules.dtype_of("x"),
        over=rows("dim", sum_of=summed),
        source="this test",
    )
    tried = declare(formula)
    for length, pieces in ((2 * BLOCK, []), (2 * BLOCK + 1, [BLOCK, BLOCK, 1])):
        seen.clear()
        spec = TensorSpec(BY_NUMPY[np.dtype(np.float32)], (length,))
        call = prepare(Call(tried, {"x": spec, "dim": 0}, ("x",)), A2, Catalogue([tried]))
        (answer,) = evaluate.run(call, {"x": np.ones(length, np.float32).tobytes()})
        assert set(np.frombuffer(answer, np.float32)) == {np.float32(1 - length)}
        assert seen == pieces


@each("dtype", [np.float32, HALF])
@each(("shape", "dim"), [((2 * LONG,), 0), ((3, 2 * LONG), 1), ((2 * LONG, 2), 0)])
def test_a_long_row_of_two_halves_has_the_bits_of_its_elements(
    dtype: Any, shape: tuple[int, ...], dim: int
) -> None:
    halves = tuple(n // 2 if axis == dim else n for axis, n in enumerate(shape))
    tensors = drawn(halves, dtype, "grad_out") | drawn(shape, dtype, "self")
    call = call_of("aclnnGluBackward", tensors, dim=dim)
    found = np.frombuffer(run(call, tensors), dtype).reshape(shape)
    short = [np.take(tensors["grad_out"], range(9), dim)]
    short += [np.take(half, range(9), dim) for half in np.split(tensors["self"], 2, dim)]
    few = {"grad_out": short[0], "self": np.concatenate(short[1:], dim)}
    few = {name: np.ascontiguousarray(array) for name, array in few.items()}
    first = np.frombuffer(run(call_of("aclnnGluBackward", few, dim=dim), few), dtype)
    ends = [np.take(half, range(9), dim) for half in np.split(found, 2, dim)]
    np.testing.assert_array_equal(np.concatenate(ends, dim), first.reshape(few["self"].shape))


def test_a_long_row_is_written_between_gaps_that_come_back_as_they_were() -> None:
    tensors = drawn((LONG,), np.float32, "grad_output", "output")
    dense = np.frombuffer(run(call_of(SOFTMAX, tensors, dim=0), tensors), np.float32)
    specs = {n: TensorSpec(BY_NUMPY[a.dtype], a.shape) for n, a in tensors.items()}
    out = TensorSpec(BY_NUMPY[np.dtype(np.float32)], (LONG,), (2,))
    arguments = {**specs, "out": out, "dim": 0}
    call = prepare(Call(CATALOGUE.find(SOFTMAX), arguments, (*tensors, "out")), A2, CATALOGUE)
    sent = np.full(2 * LONG - 1, 7, np.float32)
    found = np.frombuffer(run(call, tensors | {"out": sent}), np.float32)
    np.testing.assert_array_equal(found[::2], dense)
    assert (found[1::2] == 7).all()


def forward_of(name: str, x: Any, dim: int) -> Any:
    wide = x.astype(np.float64)
    below = wide - wide.max(dim, keepdims=True)
    result = below - np.log(np.exp(below).sum(dim, keepdims=True))
    return result if name == "aclnnLogSoftmax" else np.exp(result)


@each("name", FORWARDS)
@each(
    ("shape", "dim", "dtype"),
    [*((*each, np.float32) for each in SHAPES), (*SHAPES[0], HALF), (*SHAPES[2], BF16)],
)
def test_a_maximum_and_a_sum_are_those_of_all_pieces(
    name: str, shape: tuple[int, ...], dim: int, dtype: Any
) -> None:
    x = np.random.default_rng(8).uniform(-4, 4, shape).astype(dtype)
    found = np.frombuffer(run(call_of(name, {"self": x}, dim=dim), {"self": x}), dtype)
    exact = forward_of(name, x, dim)
    digits = {np.float32: 2**-20, HALF: 2**-10, BF16: 2**-7}[dtype]
    smallest = {np.float32: 0, HALF: 2**-24, BF16: 0}[dtype]
    np.testing.assert_allclose(
        found.reshape(shape).astype(np.float64), exact, rtol=digits, atol=smallest
    )


@each("name", FORWARDS)
@each("place", [0, BLOCK - 1, BLOCK, LONG - 1])
def test_a_maximum_in_any_piece_counts_for_all_of_its_row_alone(name: str, place: int) -> None:
    x = np.zeros((2, LONG), np.float32)
    x[1, place] = 3e38
    call = call_of(name, {"self": x}, dim=1)
    found = np.frombuffer(run(call, {"self": x}), np.float32).reshape(x.shape)
    even, far = {"aclnnSoftmax": (1 / LONG, 0), "aclnnLogSoftmax": (-np.log(LONG), -3e38)}[name]
    np.testing.assert_allclose(found[0], even, rtol=1e-6)
    np.testing.assert_allclose(np.delete(found[1], place), far, rtol=1e-6)
    assert found[1, place] == {"aclnnSoftmax": 1, "aclnnLogSoftmax": 0}[name]


@each("name", FORWARDS)
@each("number", [np.nan, np.inf])
def test_nan_and_infinity_in_one_piece_make_all_of_their_row_nan(name: str, number: float) -> None:
    x = np.zeros((2, LONG), np.float32)
    x[0, BLOCK + 1] = number
    found = np.frombuffer(run(call_of(name, {"self": x}, dim=1), {"self": x}), np.float32)
    found = found.reshape(x.shape)
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1]).all()


@each("name", FORWARDS)
def test_a_piece_of_minus_infinity_alone_counts_nothing(name: str) -> None:
    x = np.full((2, LONG), -np.inf, np.float32)
    x[0, -4:] = 7
    found = np.frombuffer(run(call_of(name, {"self": x}, dim=1), {"self": x}), np.float32)
    ends = {"aclnnSoftmax": (0, 0.25), "aclnnLogSoftmax": (-np.inf, np.float32(-np.log(4)))}[name]
    assert set(found[: LONG - 4]) == {ends[0]}
    assert set(found[LONG - 4 : LONG]) == {ends[1]}
    assert np.isnan(found[LONG:]).all()


@each("name", FORWARDS)
@each("shape", [(4, 5 * BLOCK + 1), (3 * BLOCK, 2)])
def test_helpers_do_not_change_a_bit_of_three_passes(
    name: str, shape: tuple[int, int], helpers: Helpers
) -> None:
    x = np.random.default_rng(9).normal(0, 3, shape).astype(np.float32)
    call = call_of(name, {"self": x}, dim=int(np.argmax(shape)))
    alone = run(call, {"self": x})
    assert all(run(call, {"self": x}, helpers=helpers) == alone for _ in range(5))


@each("of", [np.float32, HALF, BF16])
def test_a_long_row_is_rounded_to_the_dtype_of_its_output_first(of: Any) -> None:
    x = np.random.default_rng(9).normal(0, 3, LONG).astype(np.float32)
    out = TensorSpec(BY_NUMPY[np.dtype(of)], (LONG,))
    converted = run(call_of("aclnnLogSoftmax", {"self": x}, dim=0, out=out), {"self": x})
    short = {"self": x.astype(of)}
    assert converted == run(call_of("aclnnLogSoftmax", short, dim=0), short)


@each("dtype", [np.float32, HALF])
@each(("shape", "dim"), [((2 * LONG,), 0), ((3, 2 * LONG), 1)])
def test_a_long_row_of_values_and_gates_has_the_bits_of_its_elements(
    dtype: Any, shape: tuple[int, ...], dim: int
) -> None:
    x = drawn(shape, dtype, "self")["self"]
    found = np.frombuffer(run(call_of("aclnnGlu", {"self": x}, dim=dim), {"self": x}), dtype)
    few = np.concatenate([np.take(half, range(9), dim) for half in np.split(x, 2, dim)], dim)
    short = {"self": np.ascontiguousarray(few)}
    first = np.frombuffer(run(call_of("aclnnGlu", short, dim=dim), short), dtype)
    ends = np.take(found.reshape((*shape[:-1], shape[-1] // 2)), range(9), dim)
    np.testing.assert_array_equal(ends.reshape(-1), first)


@each("length", [1, 2, 31, 32, 33])
@each("count", [1, 255, 256, 1000])
def test_the_maxima_of_short_rows_are_those_of_numpy(length: int, count: int) -> None:
    x = np.random.default_rng(5).normal(0, 3, (count, length)).astype(np.float32)
    x[count // 3, 0] = np.inf
    x[count // 2, length // 2] = np.nan
    found = Facts({}, x.dtype).row_max(x)
    np.testing.assert_array_equal(found, x.max(-1, keepdims=True))
    assert np.isnan(found[count // 2])


@each("dim", [0, 1, 2])
def test_a_row_along_any_dimension_has_the_bits_of_the_same_row_alone(dim: int) -> None:
    x = np.random.default_rng(6).normal(0, 3, (70, 60, 50)).astype(np.float32)
    found = np.frombuffer(run(call_of("aclnnSoftmax", {"self": x}, dim=dim), {"self": x}), x.dtype)
    rows = np.ascontiguousarray(np.moveaxis(x, dim, -1))
    expected = np.frombuffer(
        run(call_of("aclnnSoftmax", {"self": rows}, dim=-1), {"self": rows}), x.dtype
    )
    back = np.moveaxis(expected.reshape(rows.shape), -1, dim)
    np.testing.assert_array_equal(found.reshape(x.shape), back)
