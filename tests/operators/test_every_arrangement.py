"""What holds for the bits of every operator: cuts of blocks, threads, roundings, casts."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product
from math import fsum
from typing import Any

import numpy as np
import pytest

from npucall.compute.evaluate import compute
from npucall.compute.work import Work
from npucall.declare.domain import Elementwise
from npucall.declare.parameters import Kind
from npucall.dtypes import BF16, COMPLEX64, DOUBLE, FLOAT, FLOAT16, DType
from npucall.errors import NpucallError
from npucall.products import A2
from npucall.tensors import TensorSpec
from npucall_conformance.cases.case import Case, Maker
from npucall_conformance.cases.made_call import in_lists
from npucall_conformance.stating.parts import Setup

from .calls import (
    LOCAL,
    MEAN,
    NONE,
    SUM,
    Arrays,
    bits,
    drawn,
    evaluated,
    prepared,
    results,
    stretched,
    usual,
)
from .defects import ON_A2, TABLES, Table
from .ulp import SINGLE_NOISE, assert_within, ulp

THREADS = 4
each = pytest.mark.parametrize("table", TABLES, ids=str)


def reduces(table: Table) -> bool:
    """Whether it adds up elements that are not rounded before."""
    over = table.operator.over
    return isinstance(over, Elementwise) and over.factor is not None


LOSSES = [t for t in TABLES if reduces(t) and "reduction" in t.statement.attributes]
ELEMENTWISE = [t for t in TABLES if isinstance(t.operator.over, Elementwise) and not reduces(t)]


@pytest.mark.parametrize("length", [7, pytest.param(1, marks=pytest.mark.more)])
@each
def test_blocks_of_any_length_give_the_same_bits(table: Table, length: int) -> None:
    wrong, dtypes = [], (FLOAT, FLOAT16) if rounds_steps(table, FLOAT16) else (FLOAT,)
    for case in (*usual(table.statement, *dtypes), *stretched(table.statement)):
        tensors, attributes = drawn(case)
        call = prepared(table.operator, tensors, attributes)
        if bits(evaluated(call, tensors, length)) != bits(evaluated(call, tensors)):
            wrong.append(case.id)
    assert not wrong


ROUNDED_BETWEEN = "aclnnFlashAttention"
"""Of these, what one product of matrices gives is rounded before the next."""


def rounds_steps(table: Table, dtype: DType) -> bool:
    """Whether steps are rounded, or numbers count in the dtype of the kernel."""
    stepwise = table.statement.stepwise(dtype) or table.statement.in_kernel
    return bool(stepwise) or table.operator.name.startswith(ROUNDED_BETWEEN)


def test_other_short_floats_are_computed_as_float32_and_rounded_once() -> None:
    wrong = []
    for table in TABLES:
        taken = table.operator.dtypes_on(table.operator.product_near(A2))
        for case in usual(table.statement, FLOAT16, BF16):
            if {FLOAT, case.dtype} <= {*taken} and not rounds_steps(table, case.dtype):
                wrong += [(case.id, name) for name in rounded_otherwise(table, case)]
    assert not wrong


def rounded_otherwise(table: Table, case: Case) -> list[str]:
    """The outputs that are not those of the same numbers in FLOAT, rounded at the end."""
    tensors, attributes = drawn(case)
    kind = case.dtype.numpy
    single = {n: a.astype(np.float32) if a.dtype == kind else a for n, a in tensors.items()}
    wider = {n: FLOAT if v is case.dtype else v for n, v in attributes.items()}
    found = evaluated(prepared(table.operator, tensors, attributes), tensors)
    expected = evaluated(prepared(table.operator, single, wider), single)
    return [
        name
        for name, array in found.items()
        if not np.array_equal(array, expected[name].astype(array.dtype), equal_nan=True)
    ]


def test_results_are_rounded_to_their_own_dtype_and_then_cast_to_that_of_the_output() -> None:
    wrong, tried = [], 0
    for table in TABLES:
        case, *_ = (*usual(table.statement, FLOAT16), *usual(table.statement, FLOAT))
        tensors, attributes = drawn(case)
        plain = prepared(table.operator, tensors, attributes)
        name, spec = next(iter(plain.outputs.items()))
        if getattr(table.operator.by_name[name], "as_is", False):
            continue  # its formula gives the dtype of the output
        if spec.dtype is not plain.kernel_dtype:  # what is computed in another is rounded once
            with suppress(NpucallError):
                own = {name: TensorSpec(plain.kernel_dtype, spec.shape)}
                plain = prepared(table.operator, tensors, attributes, **own)
        expected = evaluated(plain, tensors)[name]
        for dtype in (FLOAT, BF16, DOUBLE, COMPLEX64):
            given = {name: TensorSpec(dtype, spec.shape)}
            try:
                call = prepared(table.operator, tensors, attributes, **given)
            except NpucallError:
                continue  # it takes no such output
            if call.kernel_dtype is plain.kernel_dtype:
                tried += 1
                found = evaluated(call, tensors)[name]
                if found.tobytes() != expected.astype(dtype.numpy).tobytes():
                    wrong.append((case.id, dtype))
    assert tried > 170  # most operators take no other dtype
    assert not wrong


def test_compute_answers_what_a_client_gives() -> None:
    for table in ON_A2:
        case, *_ = usual(table.statement, FLOAT, FLOAT16)
        tensors, attributes = drawn(case)
        given = {**in_lists(tensors), **attributes}
        computed = results(compute(table.operator, **given))
        answered = results(LOCAL.run(table.operator, **given))
        assert [a.tobytes() for a in computed] == [a.tobytes() for a in answered], table


def test_every_numpy_number_serves_as_an_aclscalar() -> None:
    for table in ON_A2:
        numbers = [a.name for a in table.operator.attributes if a.kind is Kind.SCALAR]
        case, *_ = usual(table.statement, FLOAT, FLOAT16)
        tensors, attributes = drawn(case)
        ones = {**attributes, **dict.fromkeys(numbers, 1.0)}
        expected = results(LOCAL.run(table.operator, **tensors, **ones)) if numbers else []
        for kind in (np.float64, np.float32, np.float16, BF16.numpy.type) if numbers else ():
            given = {**attributes, **dict.fromkeys(numbers, kind(1))}
            found = results(LOCAL.run(table.operator, **tensors, **given))
            same = [e.astype(f.dtype) for e, f in zip(expected, found, strict=True)]
            assert bits_of(found) == bits_of(same), (table, kind)  # some dtypes are the number's


def bits_of(arrays: list[Any]) -> list[bytes]:
    return [array.tobytes() for array in arrays]


def large(table: Table, size: int) -> tuple[Arrays, Arrays]:
    """A call of this many elements in FLOAT, without a reduction."""
    make = Maker(table.statement, "large")
    attributes = {**make.combinations[0], **without_reduction(table)}
    setup = Setup(base=(size,), absent=("",))
    return drawn(make.case(FLOAT, setup, attributes))


def without_reduction(table: Table) -> Arrays:
    return {"reduction": NONE} if "reduction" in table.statement.attributes else {}


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(table, marks=() if number % 9 == 0 else pytest.mark.more, id=str(table))
        for number, table in enumerate([*ELEMENTWISE, *LOSSES])
    ],
)
def test_a_call_of_several_blocks_gives_the_bits_of_its_parts_also_to_many_threads(
    table: Table,
) -> None:
    size = 2 * Work.block + 3
    tensors, attributes = large(table, size)
    parts = []
    for start in range(0, size, 40_000):  # no divisor of the length of a block
        part = {n: a[start : start + 40_000] for n, a in tensors.items()}
        parts.append(LOCAL.run(table.operator, **part, **attributes))
    expected = np.concatenate(parts).tobytes()
    with ThreadPoolExecutor(THREADS) as pool:
        found = pool.map(
            lambda _: LOCAL.run(table.operator, **tensors, **attributes), range(THREADS)
        )
        assert [array.tobytes() for array in found] == [expected] * THREADS


def test_a_mean_counts_all_elements_and_not_those_of_a_block() -> None:
    tried = [t for t in ELEMENTWISE if "reduction" in t.statement.attributes]
    for table in tried:
        tensors, attributes = large(table, Work.block + 3)
        few = {name: array[:8] for name, array in tensors.items()}
        plain = LOCAL.run(table.operator, **few, **attributes)
        found = LOCAL.run(table.operator, **tensors, **{**attributes, "reduction": MEAN})
        np.testing.assert_allclose(found[:8], plain / (Work.block + 3), rtol=1e-4)
    assert len(tried) > 5


# --- Losses, which add up elements that they do not round before ----------------------------------


@pytest.mark.parametrize("table", LOSSES, ids=str)
def test_elements_are_added_up_unrounded_and_the_sum_is_rounded_once(table: Table) -> None:
    cases = [
        Maker(table.statement, "sums").case(
            dtype, Setup(base=base, absent=("",)), {"reduction": code}
        )
        for dtype, base in (
            *product((FLOAT, FLOAT16, BF16), ((12, 17), (3, 1, 2))),
            (FLOAT, (2 * Work.block + 3,)),
        )
        for code in (MEAN, SUM)
    ]
    for case in cases:
        tensors, attributes = drawn(case)
        found = LOCAL.run(table.operator, **tensors, **attributes)
        expected = reduced(table, case, tensors, attributes)
        assert found.dtype == case.dtype.numpy
        allowed = ulp(expected, found.dtype) + SINGLE_NOISE * np.abs(expected)
        assert_within(found, expected, allowed)


def reduced(table: Table, case: Case, tensors: Arrays, attributes: Arrays) -> Any:
    """What the elements, as float32 has them, add up to, rounded once by the kernel."""
    single = {n: a.astype(np.float32) for n, a in tensors.items()}
    elements = LOCAL.run(table.operator, **single, **{**attributes, "reduction": NONE})
    mean = attributes["reduction"] == MEAN
    factor = float(np.float32(1 / elements.size)) if mean else 1.0  # as the device has it
    total = np.float64(fsum(elements.astype(np.float64).flat)) * factor
    kernel = prepared(table.operator, tensors, attributes).kernel_dtype
    assert kernel is not None
    with np.errstate(over="ignore"):
        rounded = total.astype(kernel.numpy).astype(case.dtype.numpy)
    return np.asarray(rounded, np.float64)


def test_many_threads_get_the_same_sum_of_several_blocks() -> None:
    for table in LOSSES[::4]:
        tensors, attributes = large(table, 5 * Work.block + 7)
        given = {**tensors, **attributes, "reduction": SUM}
        expected = LOCAL.run(table.operator, **given).tobytes()
        with ThreadPoolExecutor(THREADS) as pool:
            found = pool.map(lambda _, o=table.operator, g=given: LOCAL.run(o, **g), range(THREADS))
            assert [array.tobytes() for array in found] == [expected] * THREADS
