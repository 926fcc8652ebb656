"""aclnnPrelu: prototype, values against torch, edges, and its checks in order."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from npucall.dtypes import DOUBLE, FLOAT
from npucall.errors import ShapeError
from npucall.operators.prelu import prelu
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import FLOATS, INF, LOCAL, NAN, title
from .subject import WITH_BF16, Subject, every

TENSORS = ("self", "weight", "out")
LARGE, SMALL = {"dtype": FLOAT, "shape": (2, 3, 4)}, {"dtype": FLOAT, "shape": (3,)}

# The checks, in order [src:prelu]
TABLE = Table(
    prelu,
    {"self": LARGE, "weight": SMALL, "out": LARGE},
    [
        *null(*TENSORS),
        *dtype(DOUBLE, *TENSORS),
        *shape(NINE, *TENSORS),
        Fault({"out": {"shape": (2, 3)}}, ShapeError, ("self",)),
        *shape((2, 3, 5), "self"),
        *(Fault({"weight": {"shape": s}}, ShapeError, ("weight", "self")) for s in ((4,), (0,))),
    ],
)
# self, weight
SHAPES = [
    ((), (1,)),
    ((7,), (1,)),
    ((5, 3), (3,)),
    ((5, 3), (1,)),
    ((2, 3, 4, 5), (3,)),
    ((2, 3, 4, 5), ()),
    ((2, 1, 4), (1,)),
    ((2, 4, 3), (2, 2)),
]
# x, weight, result
CELLS = [
    (3.0, 0.5, 3.0),
    (-3.0, 0.5, -1.5),
    (-3.0, -0.5, 1.5),
    (0.0, 0.5, 0.0),
    (-0.0, 0.5, -0.0),
    (0.0, INF, NAN),
    (-3.0, INF, -INF),
    (3.0, NAN, 3.0),
    (-3.0, NAN, NAN),
    (INF, 0.0, INF),
    (-INF, 0.0, NAN),
    (-INF, 0.5, -INF),
    (NAN, 0.5, NAN),
    (NAN, 0.0, NAN),
]


def torchs(tensors: dict[str, Any]) -> Any:
    import torch

    x, weight = (torch.tensor(tensors[name]) for name in ("self", "weight"))
    return torch.nn.functional.prelu(x, weight.reshape(-1)).numpy()


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* self, const aclTensor* weight, aclTensor* out",
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    # Whatever floats promote to can be cast to any of them.
    unreachable=frozenset({"promotion can be cast to the dtype of out"}),
    shapes={"self": (2, 3, 4, 5), "weight": (3,)},
    torch=torchs,
    calls=every(*({"self": of, "weight": weight} for of, weight in SHAPES)),
    casts=FLOATS,
)


@pytest.mark.parametrize("kind", FLOATS, ids=title)
def test_each_element_is_what_the_formula_says(kind: Any) -> None:
    x, weight, expected = (column.astype(kind) for column in np.array(CELLS).T)
    found = LOCAL.run(prelu, np.stack([x, np.ones_like(x)]), weight)
    assert found.dtype == kind
    rounded = np.stack([expected, np.ones_like(x)]).astype(np.float64)
    np.testing.assert_array_equal(found.astype(np.float64), rounded)


@pytest.mark.parametrize(
    ("of_x", "of_weight", "expected"),
    [
        (np.float16, ml_dtypes.bfloat16, np.float32),
        (ml_dtypes.bfloat16, np.float32, np.float32),
        (np.float16, np.float16, np.float16),
    ],
)
def test_the_result_has_the_promoted_dtype(of_x: Any, of_weight: Any, expected: Any) -> None:
    x, weight = np.linspace(-4, 4, 24).reshape(4, 6), np.linspace(-1, 1, 6)
    tensors = {"self": x.astype(of_x), "weight": weight.astype(of_weight)}
    found = SUBJECT.run(tensors)
    assert found.dtype == expected
    wide = {name: array.astype(expected) for name, array in tensors.items()}
    np.testing.assert_array_equal(found, SUBJECT.run(wide))


@pytest.mark.parametrize(("self", "weight"), [((3,), (3,)), ((3, 2), (3,)), ((), (0,))])
def test_channels_are_the_second_dimension(self: tuple[int, ...], weight: tuple[int, ...]) -> None:
    shapes = {"weight": weight, "self": self, "out": self}
    changes = {name: {"shape": s} for name, s in shapes.items()}
    fault = Fault(changes, ShapeError, ("weight", "self"))
    assert TABLE.refusal(fault) == fault.answer


@pytest.mark.parametrize(("of", "weight"), [((0, 3), (3,)), ((0,), (1,)), ((2, 0), (0,))])
def test_an_empty_input_gives_an_empty_output(of: tuple[int, ...], weight: tuple[int, ...]) -> None:
    found = LOCAL.run(prelu, np.empty(of, np.float16), np.ones(weight, np.float16))
    assert (found.shape, found.dtype) == (of, np.float16)
