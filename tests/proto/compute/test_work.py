"""npucall.compute: formulas of complete rows and of everything at once."""

from typing import Any

import numpy as np
import pytest
from tests.rows import each

from npucall.compute.evaluate import evaluate, run
from npucall.compute.helpers import Unlimited
from npucall.declare import rules
from npucall.declare.call import Call
from npucall.declare.catalogue import Catalogue
from npucall.declare.cuts import BLOCK
from npucall.declare.declaration import Operator, operator
from npucall.declare.domain import at_once, elementwise, rows
from npucall.declare.parameters import Attribute, Input, Kind, Output
from npucall.declare.prepare import prepare
from npucall.dtypes import BY_NUMPY, FLOAT, FLOATS
from npucall.errors import CancelledError, InternalError
from npucall.products import A2
from npucall.tensors import TensorSpec

HALF = np.float16
MANY = 1 << 16


def declared(over: Any, formula: Any, *parameters: Any) -> Operator[..., Any]:
    declare = operator(
        "aclnnTried",
        *parameters,
        products={A2: FLOATS},
        checks=(rules.shape_of("x", into="sums", make=lambda draft: (*draft.shape("x")[:-1], 1)),),
        kernel_dtype=rules.dtype_of("x"),
        over=over,
        area="arithmetic",
        source="this test",
    )
    return declare(formula)


X, Y = Input("x", "first"), Input("y", "second")
DIM = Attribute("dim", Kind.INT64, "along which rows lie")
OUT = Output("out", "result", shape="x", dtype="x")
SUMS = Output("sums", "one for each row", shape="sums", dtype="x")
over_all = each("over", [elementwise("x"), rows("dim"), at_once()])


def computed(
    tried: Operator[..., Any], tensors: dict[str, Any], block: int = MANY, **more: Any
) -> list[Any]:
    """The outputs of a call, over memory that held something else."""
    exact = more.pop("exact", False)
    targets = more.pop("targets", {})
    specs = {n: TensorSpec(BY_NUMPY[a.dtype], a.shape) for n, a in tensors.items()}
    call = Call(tried, {**specs, **more}, tuple(tensors))
    prepared = prepare(call, A2, Catalogue([tried]))
    outputs = {
        n: targets.get(n, np.full(spec.shape, 7, float if exact else spec.dtype.numpy))
        for n, spec in prepared.outputs.items()
    }
    evaluate(prepared, tensors, outputs, block=block, exact=exact)
    return list(outputs.values())


class Recorder:
    """A formula of rows that remembers what it was given, and its operator."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        optional = Input("y", "a factor", optional=True)
        self.operator = declared(rows("dim"), self._of_rows, X, optional, DIM, OUT)

    def _of_rows(self, whole: Any, x: Any, y: Any = None, dim: int = -1) -> Any:
        self.seen.append((x, y))
        return x - x.sum(-1, keepdims=True) * (2 if y is None else y)


def numbers(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    return np.asarray(np.random.default_rng(2).integers(-8, 9, shape)).astype(dtype)


@each("block", [1, 7, 12, MANY])
@each(
    ("shape", "dim"),
    [
        *(((3, 4, 5), dim) for dim in range(-3, 3)),
        *((shape, dim) for shape in ((0, 3), (3, 0), (0,)) for dim in (0, -1)),
    ],
)
def test_rows_lie_along_the_dimension_that_the_attribute_names(
    shape: tuple[int, ...], dim: int, block: int
) -> None:
    x = numbers(shape)
    (found,) = computed(Recorder().operator, {"x": x}, block, dim=dim)
    np.testing.assert_array_equal(found, x - 2 * x.sum(dim, keepdims=True))


@each("dim", [0, -1])
def test_rank_0_is_one_row_of_one_element(dim: int) -> None:
    recorder = Recorder()
    (found,) = computed(recorder.operator, {"x": np.float32(3) * np.ones(())}, dim=dim)
    assert (found.shape, float(found)) == ((), -3.0)
    assert recorder.seen[0][0].shape == (1,)


@each(("block", "blocks"), [(1, 6), (10, 6), (24, 4), (50, 2), (60, 1)])
def test_a_block_is_complete_rows_side_by_side_as_many_as_the_limit_has_room_for(
    block: int, blocks: int
) -> None:
    recorder = Recorder()
    computed(recorder.operator, {"x": numbers((2, 10, 3))}, block, dim=1)
    assert len(recorder.seen) == blocks
    assert {x.shape[-1] for x, _ in recorder.seen} == {10}
    assert sum(x.size for x, _ in recorder.seen) == 60


@each("dtype", [HALF, np.float32])
def test_rows_come_to_the_formula_contiguous_and_widened(dtype: Any) -> None:
    recorder = Recorder()
    computed(recorder.operator, {"x": numbers((4, 5), dtype).T}, 8, dim=1)
    assert all(x.flags.c_contiguous and x.dtype == np.float32 for x, _ in recorder.seen)


def test_rows_are_written_through_the_strides_of_the_output() -> None:
    x, memory = numbers((3, 4)), np.full((4, 6), 7, np.float32)
    computed(Recorder().operator, {"x": x}, targets={"out": memory.T[::2]}, dim=0)
    np.testing.assert_array_equal(memory.T[::2], x - 2 * x.sum(0))
    assert (memory[:, 1::2] == 7).all()


def test_an_optional_input_that_is_given_has_rows_like_the_others() -> None:
    x, y = numbers((2, 3)), np.full((2, 3), 3, np.float32)
    (found,) = computed(Recorder().operator, {"x": x, "y": y}, dim=1)
    np.testing.assert_array_equal(found, x - 3 * x.sum(1, keepdims=True))


def test_a_row_that_cannot_be_cut_is_declared_as_it_is() -> None:
    tried = Recorder().operator

    def prepared(spec: TensorSpec, dim: int) -> Any:
        return prepare(Call(tried, {"x": spec, "dim": dim}, ("x",)), A2, Catalogue([tried]))

    long = prepared(TensorSpec(FLOAT, (BLOCK + 1,)), 0)
    short = prepared(TensorSpec(FLOAT, (2 * BLOCK, BLOCK // 2), (0, 0)), 1)
    assert long.working_bytes == 16 * 8 * (BLOCK + 1)
    assert (short.working_bytes, short.computation) == (0, BLOCK * BLOCK)


@each("shape", [(), (4,), (2, 3, 4)])
@each("block", [1, MANY])
def test_at_once_means_every_array_complete_in_one_turn(shape: tuple[int, ...], block: int) -> None:
    seen = []

    def formula(whole: Any, x: Any, y: Any) -> Any:
        seen.append((x.shape, y.shape))
        return whole.read(x, ...) + whole.read(y, ...).sum()

    x, y = numbers(shape), numbers((5,))
    (found,) = computed(declared(at_once(), formula, X, Y, OUT), {"x": x, "y": y}, block)
    np.testing.assert_array_equal(found, x + y.sum())
    assert seen == [(shape, (5,))]


def test_several_outputs_come_as_a_tuple_in_their_order() -> None:
    def of_rows(whole: Any, x: Any, dim: int = -1) -> Any:
        return x * 2, x.sum(-1, keepdims=True)

    def of_all(whole: Any, x: Any, dim: int = -1) -> Any:
        return of_rows(whole, whole.read(x, ...))

    for over, formula in (rows("dim"), of_rows), (at_once(), of_all):
        tried = declared(over, formula, X, DIM, OUT, SUMS)
        for dtype in np.float32, HALF:
            x = numbers((6, 5), dtype)
            for block in (1, 10, MANY):
                doubled, sums = computed(tried, {"x": x}, block)
                np.testing.assert_array_equal(doubled, 2 * x)
                np.testing.assert_array_equal(sums, x.sum(1, keepdims=True))
                assert (doubled.dtype, sums.dtype) == (dtype, dtype)


def test_at_once_an_output_of_the_formula_may_broadcast() -> None:
    tried = declared(at_once(), lambda whole, x: np.zeros((), x.dtype), X, OUT)
    (found,) = computed(tried, {"x": numbers((2, 3))})
    assert not found.any()


def written_in(blocks: list[tuple[slice, ...]]) -> Operator[..., Any]:
    """A formula that doubles these blocks of x."""

    def formula(whole: Any, x: Any) -> Any:
        out = whole.output("out", x.shape)
        for block in blocks:
            out[block] = 2 * whole.read(x, block)
        return out

    return declared(at_once(), formula, X, OUT)


@each("dtype", [HALF, np.float32])
def test_at_once_a_formula_may_write_its_results_block_by_block(dtype: Any) -> None:
    x = numbers((3, 4), dtype)
    (found,) = computed(written_in([np.s_[:2, :], np.s_[2:, 1:], np.s_[2:, :1]]), {"x": x})
    np.testing.assert_array_equal(found, 2 * x)
    with pytest.raises(InternalError, match=r"out: .*found 1 missing"):  # never an answer
        computed(written_in([np.s_[:2, :], np.s_[2:, 1:]]), {"x": x})


def test_at_once_the_call_may_end_between_blocks() -> None:
    def formula(whole: Any, x: Any) -> Any:
        out = whole.output("out", x.shape)
        for block in whole.blocks(x.shape):
            out[block] = whole.read(x, block)
        return out

    class Ended(Unlimited):
        def pause(self) -> None:
            raise CancelledError("nobody waits")

    tried = declared(at_once(), formula, X, OUT)
    given = Call(tried, {"x": TensorSpec(FLOAT, (3,))}, ("x",))
    call = prepare(given, A2, Catalogue([tried]))
    assert bytes(run(call, {"x": bytes(12)})[0]) == bytes(12)
    with pytest.raises(CancelledError):
        run(call, {"x": bytes(12)}, Ended())


# Whatever a formula is over.


@over_all
def test_what_was_not_given_is_none_and_what_is_not_read_is_zero(over: Any) -> None:
    seen = []

    def formula(whole: Any, x: Any, shape: Any, y: Any = None, dim: int = -1) -> Any:
        seen.append((shape.max(), y))
        return x

    unread = Input("shape", "only its shape matters", read=False)
    optional = Input("y", "may be absent", optional=True)
    tried = declared(over, formula, X, unread, optional, DIM, OUT)
    x = numbers((2, 3))
    (found,) = computed(tried, {"x": x, "shape": x + 5})
    np.testing.assert_array_equal(found, x)
    assert seen == [(0, None)]


@over_all
def test_an_input_as_it_is_keeps_its_dtype_and_others_get_the_kernels(over: Any) -> None:
    seen = []

    def formula(whole: Any, x: Any, y: Any, index: Any, dim: int = -1) -> Any:
        x, y, index = (whole.read(array, ...) for array in (x, y, index))
        seen.append((x.dtype, y.dtype, index.dtype, index.max()))
        return x + y

    tried = declared(over, formula, X, Y, Input("index", "indices", as_is=True), DIM, OUT)
    x, far = numbers((2, 3), HALF), np.full((2, 3), 2**40)
    (found,) = computed(tried, {"x": x, "y": np.full((2, 3), 2049, np.int64), "index": far})
    assert seen == [(np.float32, np.float32, np.int64, 2**40)]
    np.testing.assert_array_equal(found, x + HALF(2048))  # 2049 rounded to the kernel's FLOAT16


@over_all
def test_exact_results_are_float64(over: Any) -> None:
    seen: list[Any] = []

    def formula(whole: Any, x: Any, dim: int = -1) -> Any:
        read = whole.read(x, ...)
        seen.append((read.dtype, whole.dtype))
        return read / read.dtype.type(3)

    x = numbers((2, 3))
    (found,) = computed(declared(over, formula, X, DIM, OUT), {"x": x}, exact=True)
    assert seen == [(np.float64, np.float64)]
    np.testing.assert_array_equal(found, x.astype(np.float64) / 3)


@over_all
def test_every_byte_but_0_of_a_truth_value_is_true(over: Any) -> None:
    masks = []

    def formula(whole: Any, x: Any, y: Any, mask: Any, dim: int = -1) -> Any:
        read = whole.read(mask, ...)
        masks.append((read.dtype, read.view(np.uint8).tolist()))
        return whole.read(x, ...) + whole.read(y, ...)

    tried = declared(over, formula, X, Y, Input("mask", "a mask", as_is=True), DIM, OUT)
    truth = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    (found,) = computed(tried, {"x": np.zeros(4, np.float32), "y": truth, "mask": truth})
    assert found.tolist() == [0, 1, 1, 1]
    assert masks == [(np.bool_, [0, 1, 1, 1])]
