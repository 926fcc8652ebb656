"""When numbers of a device count as those of the reference, and when as never written."""

import numpy as np
import pytest

from npucall.compute import evaluate
from npucall.declare.prepare import Prepared
from npucall.declare.samples import Form, sample, sample_storages
from npucall.dtypes import BF16, FLOAT, FLOAT16, INT32, DType
from npucall.memory import PATTERN
from npucall.operators import CATALOGUE
from npucall.products import A2
from npucall_server.commands.doctor.bench import difference, is_untouched

TANH, THRESHOLD = (CATALOGUE.find(name) for name in ("aclnnTanhBackward", "aclnnThresholdBackward"))


def call_of(dtype: DType, form: Form = Form.ORDINARY) -> tuple[Prepared, dict[str, bytes]]:
    operator = THRESHOLD if dtype is INT32 else TANH
    call = sample(operator, A2, CATALOGUE, dtype, form)
    return call, sample_storages(call, 1)


def test_what_the_reference_gives_is_right() -> None:
    for dtype in FLOAT, FLOAT16, BF16, INT32:
        for form in Form:
            call, storages = call_of(dtype, form)
            assert difference(call, storages, evaluate.run(call, storages)) == ""


@pytest.mark.parametrize(
    ("dtype", "right", "wrong"),
    [(FLOAT, 1 + 2e-6, 1 + 1e-4), (FLOAT16, 1 + 2e-3, 1.02), (BF16, 1 + 1e-2, 1.1)],
)
def test_some_roundings_are_right_and_more_is_not(dtype: DType, right: float, wrong: float) -> None:
    call, storages = call_of(dtype)
    (exact,) = evaluate.run(call, storages)
    numbers = np.frombuffer(exact, dtype.numpy).astype(np.float64)
    near, far = ([(numbers * f).astype(dtype.numpy).tobytes()] for f in (right, wrong))
    assert difference(call, storages, near) == ""
    assert difference(call, storages, far) != ""
    assert difference(call, storages, far, 1000) == ""


def test_what_is_wrong_is_counted_and_shown() -> None:
    call, storages = call_of(INT32)
    (right,) = evaluate.run(call, storages)
    numbers = np.frombuffer(right, np.int32).copy()
    numbers[3] = 41
    found = difference(call, storages, [numbers.tobytes()])
    assert found.startswith("out: 1 of 6 numbers are wrong: expected ")
    assert found.endswith("found 41")
    call, storages = call_of(FLOAT)
    found = difference(call, storages, [np.full(6, np.nan, np.float32).tobytes()])
    assert "6 of 6 numbers are wrong" in found


def test_outputs_of_the_pattern_or_of_what_was_sent_were_never_written() -> None:
    call, storages = call_of(FLOAT)
    assert is_untouched(call, storages, [bytes([PATTERN]) * 24])
    assert not is_untouched(call, storages, evaluate.run(call, storages))
    call, storages = call_of(FLOAT, Form.VIEWS)
    (output,) = call.outputs
    assert is_untouched(call, storages, [storages[output]])
    assert not is_untouched(call, storages, evaluate.run(call, storages))
