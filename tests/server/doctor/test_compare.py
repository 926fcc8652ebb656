"""When numbers of a device count as those of the reference, and when as never written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from npucall.buffers import PATTERN
from npucall.compute import evaluate
from npucall.declare.samples import Form, sample, sample_storages
from npucall.dtypes import BF16, FLOAT, FLOAT16, INT32
from npucall.operators import CATALOGUE
from npucall.products import A2
from npucall_server.doctor.compare import difference, is_untouched

if TYPE_CHECKING:
    from npucall.declare.prepare import Prepared
    from npucall.dtypes import DType

TANH, THRESHOLD = (CATALOGUE.find(name) for name in ("aclnnTanhBackward", "aclnnThresholdBackward"))


def call_of(dtype: DType, form: Form = Form.ORDINARY) -> tuple[Prepared, dict[str, bytes]]:
    operator = THRESHOLD if dtype is INT32 else TANH
    call = sample(operator, A2, CATALOGUE, dtype, form)
    return call, sample_storages(call, 1)


@pytest.mark.parametrize("dtype", [FLOAT, FLOAT16, BF16, INT32], ids=str)
@pytest.mark.parametrize("form", Form)
def test_what_the_reference_gives_is_right(dtype: DType, form: Form) -> None:
    call, storages = call_of(dtype, form)
    assert difference(call, storages, evaluate.run(call, storages)) == ""


@pytest.mark.parametrize(
    ("dtype", "factor", "is_right"),
    [
        (FLOAT, 1 + 2e-6, True), (FLOAT, 1 + 1e-4, False),
        (FLOAT16, 1 + 2e-3, True), (FLOAT16, 1.02, False),
        (BF16, 1 + 1e-2, True), (BF16, 1.1, False),
    ],
)  # fmt: skip
def test_some_roundings_are_right_and_more_is_not(
    dtype: DType, factor: float, is_right: bool
) -> None:
    call, storages = call_of(dtype)
    (right,) = evaluate.run(call, storages)
    numbers = np.frombuffer(right, dtype.numpy).astype(np.float64) * factor
    found = difference(call, storages, [numbers.astype(dtype.numpy).tobytes()])
    assert (found == "") is is_right
    assert difference(call, storages, [numbers.astype(dtype.numpy).tobytes()], 1000) == ""


def test_one_integer_that_differs_is_wrong_and_shown() -> None:
    call, storages = call_of(INT32)
    (right,) = evaluate.run(call, storages)
    numbers = np.frombuffer(right, np.int32).copy()
    numbers[3] = 41
    found = difference(call, storages, [numbers.tobytes()])
    assert found.startswith("out: 1 of 6 numbers are wrong: expected ")
    assert found.endswith("found 41")


def test_nan_in_place_of_a_number_is_wrong() -> None:
    call, storages = call_of(FLOAT)
    found = difference(call, storages, [np.full(6, np.nan, np.float32).tobytes()])
    assert "6 of 6 numbers are wrong" in found


def test_outputs_of_the_pattern_were_never_written() -> None:
    call, storages = call_of(FLOAT)
    assert is_untouched(call, storages, [bytes([PATTERN]) * 24])
    assert not is_untouched(call, storages, evaluate.run(call, storages))


def test_outputs_that_are_what_was_sent_were_never_written() -> None:
    call, storages = call_of(FLOAT, Form.VIEWS)
    (output,) = call.outputs
    assert is_untouched(call, storages, [storages[output]])
    assert not is_untouched(call, storages, evaluate.run(call, storages))
