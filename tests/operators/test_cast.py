"""aclnnCast: prototype, every dtype into every other, and its checks in order."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from npucall.dtypes import DTYPES, FLOAT, FLOAT16, INT8, UINT64, DType
from npucall.errors import DTypeError, ShapeError
from npucall.operators.cast import cast
from npucall.products import ASCEND_310P, ASCEND_910

from .arithmetic import NEWER, OLDER
from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import BF16, INF, LOCAL, NAN
from .subject import WITH_BF16, Cells, Subject, every, of_one_shape

UNSIGNED = "UINT16 UINT32 UINT64"
TAKEN = [each for each in DTYPES if each.name in f"{NEWER} {UNSIGNED}".split()]
(EIGHT_BITS,) = (each for each in DTYPES if each.name == "FLOAT8_E5M2")

# The checks, in order [src:cast]; CANN compares out with dtype only when it copies
TABLE = Table(
    cast,
    {"dtype": FLOAT},
    [
        *null("self", "out"),
        *dtype(EIGHT_BITS, "self"),
        Fault({"dtype": EIGHT_BITS}, DTypeError, ("dtype",)),
        Fault({name: {"shape": NINE} for name in ("self", "out")}, ShapeError, ("self",)),
        *shape((3, 2), "out"),
        *dtype(FLOAT16, "out"),
        Fault({"dtype": INT8}, DTypeError, ("out",)),
    ],
)
CELLS = [(x, x) for x in (1.0, -0.0, 0.1, INF, -INF, NAN)]


def torch_says(tensors: dict[str, Any], **_: Any) -> Any:
    return tensors["self"]


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* self, const aclDataType dtype, aclTensor* out",
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    newer=f"{NEWER} {UNSIGNED}",
    older=f"{OLDER} {UNSIGNED}",
    typed=("self",),
    attributes={"dtype": FLOAT},
    follows="dtype",
    cells=Cells("self", CELLS),
    torch=torch_says,
    calls=every(*of_one_shape("self", (12, 17), (), (2, 1, 3))),
)


def test_every_dtype_becomes_every_other() -> None:
    numbers, wrong = [0, 1, 2, 3, 100], []
    for one, other in product(TAKEN, TAKEN):
        found = LOCAL.run(cast, np.array(numbers).astype(one.numpy), other)
        expected = np.array(
            [bool(n) for n in numbers] if "BOOL" in (one.name, other.name) else numbers
        )
        if found.dtype != other.numpy or (found.astype(np.complex128) != expected).any():
            wrong.append((one, other, found))
    assert not wrong


@pytest.mark.parametrize("kind", [np.float16, BF16, np.float32, np.float64], ids=str)
def test_of_a_float_an_integer_loses_the_fraction_nan_is_0_and_the_range_ends(kind: Any) -> None:
    x = np.array([2.75, -2.75, NAN, INF, -INF, 1e4, -1e4, 0.5, -0.5], kind)
    for to in (np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint16, np.uint32, np.uint64):
        least, most = np.iinfo(to).min, np.iinfo(to).max
        expected = [2, -2, 0, most, least, int(x[5]), int(x[6]), 0, 0]
        found = LOCAL.run(cast, x, np.dtype(to))
        assert found.tolist() == [min(max(n, least), most) for n in expected]


def test_the_ends_of_64_bits_are_met_exactly() -> None:
    x = np.array([2.0**63, -(2.0**63), 2.0**63 - 1024, 2.0**64, -1.0])
    assert LOCAL.run(cast, x, np.int64).tolist() == [
        2**63 - 1, -(2**63), 2**63 - 1024, 2**63 - 1, -1,
    ]  # fmt: skip
    assert LOCAL.run(cast, x, np.uint64).tolist() == [2**63, 0, 2**63 - 1024, 2**64 - 1, 0]


def test_integers_wrap_around() -> None:
    found = LOCAL.run(cast, np.array([300, -1, 2**40 + 5]), np.uint8)
    assert found.tolist() == [44, 255, 5]


def test_everything_but_0_is_true() -> None:
    x = np.array([0.0, -0.0, NAN, 1e-40, INF], np.float32)
    assert LOCAL.run(cast, x, np.bool_).tolist() == [False, False, True, True, True]
    imaginary = LOCAL.run(cast, np.array([0j, 1j]), np.bool_)
    assert imaginary.tolist() == [False, True]


@pytest.mark.filterwarnings("error")
def test_of_a_complex_number_the_real_part_remains() -> None:
    x = np.array([1.5 + 2j, -3.75 - 1j], np.complex64)
    for kind, expected in (
        (np.float64, [1.5, -3.75]),
        (np.int32, [1, -3]),
        (np.float16, [1.5, -3.75]),
    ):
        assert LOCAL.run(cast, x, np.dtype(kind)).tolist() == expected


def test_floats_are_rounded_to_nearest_even() -> None:
    x = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 65520.0, 2.0**-25, 3 * 2.0**-25], np.float32)
    expected = [1.0, 1 + 2.0**-9, INF, 0.0, 2.0**-23]
    assert LOCAL.run(cast, x, np.float16).tolist() == expected


@pytest.mark.parametrize("given", [FLOAT, UINT64], ids=str)
def test_an_output_that_is_given_has_the_dtype_that_is_asked_for(given: DType) -> None:
    out = {"out": np.empty(1, given.numpy)}
    with pytest.raises(DTypeError, match="out: expected INT8"):
        LOCAL.options(outputs=out).run(cast, np.ones(1, np.float32), np.int8)
