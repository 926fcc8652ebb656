"""aclnnGlu: prototype, values against torch, edges, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import FLOAT, INT32
from npucall.errors import AttributeValueError, ShapeError
from npucall.operators.glu import glu
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import FLOATS, INF, LOCAL, NAN, title
from .subject import THREE, TWO, WITH_BF16, Given, Subject, between

# The checks, in order [src:glu]
TABLE = Table(
    glu,
    {"self": {"dtype": FLOAT, "shape": (2, 6)}, "dim": -1},
    [
        *null("self", "out"),
        *dtype(INT32, "self", "out"),
        *shape(NINE, "self", "out"),
        *shape((), "self"),
        *(Fault({"dim": dim}, AttributeValueError, ("dim",)) for dim in (2, -3)),
        Fault({"self": {"shape": (2, 5)}}, ShapeError, ("self", "dim")),
        *shape((2, 6), "out"),
        *shape((3,), "out"),
    ],
)
# value, gate, result
CELLS = [
    (3.0, 0.0, 1.5),
    (-3.0, -0.0, -1.5),
    (3.0, INF, 3.0),
    (3.0, -INF, 0.0),
    (3.0, 200.0, 3.0),
    (3.0, NAN, NAN),
    (INF, 0.0, INF),
    (-INF, 3.0, -INF),
    (INF, -INF, NAN),  # infinity times 0
    (NAN, 1.0, NAN),
    (0.0, -INF, 0.0),
    (60000.0, 200.0, 60000.0),
]
CALLS = [
    Given({"dim": dim - back}, {"self": of})
    for of in ((2,), (4, 6), (2, 4, 6), (2, 1, 4, 2, 6))
    for dim, extent in enumerate(of)
    for back in (0, len(of))
    if extent % 2 == 0
]


def torchs(tensors: dict[str, Any], dim: int) -> Any:
    import torch

    return torch.nn.functional.glu(torch.tensor(tensors["self"]), dim).numpy()


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* self, int64_t dim, const aclTensor* out",
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    newer=f"{THREE} DOUBLE",
    older=f"{TWO} DOUBLE",
    # Whatever of the list self is can be cast to whatever of it out is.
    unreachable=frozenset({"self can be cast to the dtype of out"}),
    attributes={"dim": -1},
    shapes={"self": (12, 18)},
    values={"self": between(-8, 8)},
    torch=torchs,
    calls=CALLS,
    casts=(*FLOATS, np.float64),
)


def test_the_dimension_is_the_last_unless_it_is_given() -> None:
    x = np.linspace(-4, 4, 24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_array_equal(LOCAL.run(glu, x), LOCAL.run(glu, x, dim=1))


@pytest.mark.parametrize("kind", [*FLOATS, np.float64], ids=title)
def test_each_element_is_what_the_formula_says(kind: Any) -> None:
    values, gates, expected = np.array(CELLS).T
    found = LOCAL.run(glu, np.concatenate([values, gates]).astype(kind))
    assert found.dtype == kind
    rounded = expected.astype(kind).astype(np.float64)
    np.testing.assert_array_equal(found.astype(np.float64), rounded)


def test_behind_a_gate_that_is_nearly_closed_a_value_keeps_its_digits() -> None:
    x = np.array([1e30, -100], np.float32)
    # 1e30 e^-100; e^-100 alone has five bits in FLOAT
    np.testing.assert_allclose(LOCAL.run(glu, x), [3.720075976e-14], rtol=2**-20)


@pytest.mark.parametrize(("of", "dim"), [((0,), 0), ((0, 4), 1), ((4, 0), 0), ((4, 0), 1)])
def test_an_empty_input_gives_an_empty_output(of: tuple[int, ...], dim: int) -> None:
    halved = tuple(n // 2 if axis == dim else n for axis, n in enumerate(of))
    found = LOCAL.run(glu, np.empty(of, np.float16), dim=dim)
    assert (found.shape, found.dtype) == (halved, np.float16)
