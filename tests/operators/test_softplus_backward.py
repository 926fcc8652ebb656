"""aclnnSoftplusBackward: prototype, values, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.declare.parameters import Scalar
from npucall.dtypes import BF16, COMPLEX64, DOUBLE, DTYPES, FLOAT, FLOAT16, INT32, UINT16
from npucall.errors import DTypeError, ShapeError
from npucall.operators.softplus_backward import softplus_backward
from npucall.products import ASCEND_910

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import FLOATS, INF, LOCAL, NAN
from .subject import THREE, TWO, WITH_BF16, Cells, Subject, aten_of, every, steps

# The checks, in order [src:softplus]; beta and threshold are the service's
TABLE = Table(
    softplus_backward,
    {"beta": Scalar(DOUBLE, 1.0), "threshold": Scalar(DOUBLE, 20.0)},
    [
        *null("grad_output", "self", "grad_input", "beta", "threshold"),
        *dtype(INT32, "grad_output"),
        *dtype(UINT16, "self"),
        *dtype(INT32, "grad_input"),
        *shape(NINE, "grad_output", "self", "grad_input"),
        *shape((3, 2), "self"),
        Fault({"grad_output": {"shape": (1, 3)}}, ShapeError, ("self",)),
        Fault({"grad_input": {"shape": (3, 2)}}, ShapeError, ("self",)),
        *(Fault({n: Scalar(COMPLEX64, 1)}, DTypeError, (n,)) for n in ("beta", "threshold")),
    ],
)
NAMES = {"FLOAT", "FLOAT16", "BF16", "DOUBLE"}
INTEGERS = {"INT8", "INT16", "INT32", "INT64", "UINT8", "BOOL"}
# self, beta, threshold, grad_output, result
CELLS = [
    (0.0, 1.0, 20.0, 3.0, 1.5),  # 3 / (1 + e^0)
    (-0.0, 1.0, 20.0, 3.0, 1.5),
    (2.0, 1.0, 1.5, 3.0, 3.0),  # linear
    (1.5, 2.0, 2.5, 3.0, 3.0),  # beta * self counts
    (0.0, 1.0, 0.0, 3.0, 1.5),  # equal to the threshold: not yet linear
    (0.0, 1.0, -1.0, 3.0, 3.0),
    (-INF, 1.0, 20.0, 3.0, 0.0),
    (INF, 1.0, 20.0, 3.0, 3.0),
    (INF, -1.0, 20.0, 3.0, 0.0),
    (INF, 1.0, INF, 3.0, 3.0),  # 3 / (1 + e^-inf)
    (100.0, 1.0, 1000.0, 3.0, 3.0),  # e^100 is no number of float32
    (-100.0, 1.0, 20.0, 3.0, 0.0),
    (NAN, 1.0, 20.0, 3.0, NAN),
    (5.0, NAN, 20.0, 3.0, NAN),
    (0.0, 1.0, NAN, 3.0, 1.5),
    (5.0, 0.0, 20.0, 3.0, 1.5),
    (0.0, 1.0, 20.0, INF, INF),
    (2.0, 1.0, 1.5, NAN, NAN),
]


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    (
        "const aclTensor* gradOutput, const aclTensor* self, const aclScalar* beta, "
        "const aclScalar* threshold, aclTensor* gradInput"
    ),
    documented=(*WITH_BF16, ASCEND_910),
    newer=f"{THREE} DOUBLE",
    older=f"{TWO} DOUBLE",
    attributes={"beta": 1.0, "threshold": 20.0},
    values={"self": steps(255)},
    cells=Cells("self beta threshold grad_output", CELLS, kinds=(*FLOATS, np.float64)),
    torch=aten_of(softplus_backward, "softplus_backward"),
    calls=every(beta=(1.0, 2.5, -0.5), threshold=(20.0, 1.5, 0.0)),
)


@pytest.mark.parametrize(
    ("soc", "bf16"), [("Ascend910B1", {"BF16"}), ("Ascend910A", set()), ("Ascend310P3", set())]
)
@pytest.mark.parametrize("name", ["grad_output", "self", "grad_input"])
def test_self_alone_may_have_integers(name: str, soc: str, bf16: set[str]) -> None:
    faults = {kind: Fault({name: {"dtype": kind}}, DTypeError, (name,)) for kind in DTYPES}
    taken = {kind.name for kind, f in faults.items() if TABLE.refusal(f, soc=soc) is None}
    assert taken == (NAMES - {"BF16"}) | bf16 | (INTEGERS if name == "self" else set())


def test_integers_are_taken_on_no_product_that_has_nothing() -> None:
    fault = Fault({"self": {"dtype": INT32}}, DTypeError, ("grad_output",))
    assert TABLE.refusal(fault, soc="Ascend310") == fault.answer


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.bool_])
def test_integers_count_as_the_numbers_that_they_are(kind: Any) -> None:
    g, x = np.ones(2, np.float16), np.array([0, 1], kind)
    found = LOCAL.run(softplus_backward, g, x, 1.0, 20.0)
    assert found.dtype == np.float16  # that of grad_output
    np.testing.assert_array_equal(found, np.float16([0.5, 1 / (1 + np.exp(-1.0))]))


# grad_output, self, what they are computed in
COMPUTED_IN = [
    (FLOAT16, FLOAT16, FLOAT16),
    (BF16, BF16, BF16),
    (FLOAT, FLOAT, FLOAT),
    (DOUBLE, DOUBLE, FLOAT),
    (FLOAT16, BF16, FLOAT),
    (FLOAT, FLOAT16, FLOAT),
    (DOUBLE, FLOAT16, FLOAT),
    (BF16, INT32, FLOAT),
]


@pytest.mark.parametrize(("of_g", "of_x", "kernel"), COMPUTED_IN, ids=str)
def test_it_is_computed_in_float_unless_both_share_a_short_float(
    of_g: Any, of_x: Any, kernel: Any
) -> None:
    g, x = np.ones(3, of_g.numpy), np.ones(3, of_x.numpy)
    result = LOCAL.execute(softplus_backward, g, x, 1.0, 20.0)
    assert result.kernel_dtype is kernel
    assert result.value.dtype == of_g.numpy


def test_the_numbers_are_used_as_float32() -> None:
    x = np.linspace(-4, 4, 33, dtype=np.float32)
    beta, threshold = (float(np.float32(value)) for value in (0.3, 0.7))
    found = LOCAL.run(softplus_backward, x, x, 0.3, 0.7)
    np.testing.assert_array_equal(found, LOCAL.run(softplus_backward, x, x, beta, threshold))


@pytest.mark.torch
def test_double_is_computed_in_float_unlike_in_torch() -> None:
    pytest.importorskip("torch")
    assert SUBJECT.torch is not None
    tensors = SUBJECT.draw(np.float64)
    found, expected = SUBJECT.run(tensors), SUBJECT.torch(tensors, **SUBJECT.attributes)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, found.astype(np.float32))  # nothing finer in it
    assert (found != expected).any()
    np.testing.assert_allclose(found, expected, rtol=2**-21)
