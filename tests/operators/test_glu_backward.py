"""aclnnGluBackward: prototype, values against torch, and its checks in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.dtypes import FLOAT, FLOAT16, INT32
from npucall.errors import AttributeValueError, ShapeError
from npucall.operators.glu_backward import glu_backward
from npucall.products import ASCEND_310P, ASCEND_910

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import FLOATS, INF, LOCAL, NAN, aten, drawn, title, wide
from .subject import THREE, TWO, WITH_BF16, Given, Subject, aten_of, between

WHOLE, HALF = {"dtype": FLOAT, "shape": (2, 6)}, {"dtype": FLOAT, "shape": (2, 3)}

# The order of ops-nn [src:check-order]: null tensors, dtypes, ranks, shapes
TABLE = Table(
    glu_backward,
    {"grad_out": HALF, "self": WHOLE, "out": WHOLE, "dim": -1},
    [
        *null("self", "grad_out", "out"),
        *dtype(INT32, "self"),
        *dtype(FLOAT16, "grad_out", "out"),
        *shape(NINE, "self", "out", "grad_out"),
        *shape((), "self"),
        *(Fault({"dim": dim}, AttributeValueError, ("dim",)) for dim in (2, -3)),
        Fault({"self": {"shape": (2, 5)}}, ShapeError, ("self", "dim")),
        *shape((2, 6), "grad_out"),
        *shape((3,), "grad_out"),
        *shape((2, 3), "out"),
    ],
)
# grad_out, value, gate, their gradients
CELLS = [
    (2.0, 3.0, 0.0, 1.0, 1.5),  # g / 2, g * a / 4
    (2.0, 3.0, INF, 2.0, 0.0),
    (2.0, 3.0, -INF, 0.0, 0.0),
    (2.0, 3.0, NAN, NAN, NAN),
    (2.0, INF, 0.0, 1.0, INF),
    (2.0, INF, INF, 2.0, NAN),
    (2.0, NAN, 0.0, 1.0, NAN),
    (NAN, 3.0, 0.0, NAN, NAN),
    (INF, 0.0, 0.0, INF, NAN),
    (-INF, 1.0, 0.0, -INF, -INF),
    (0.0, 3.0, 1.0, 0.0, 0.0),
]


def sample(of: tuple[int, ...], dim: int, kind: Any = np.float64) -> dict[str, Any]:
    g, x = drawn(halved(of, dim), of, dtype=kind, largest=8)
    return {"grad_out": g, "self": x}


def along_every_dimension(of: tuple[int, ...]) -> list[Given]:
    even = [dim for dim, extent in enumerate(of) if extent % 2 == 0]
    dims = (*even, *(dim - len(of) for dim in even))
    return [Given({"dim": dim}, {"self": of, "grad_out": halved(of, dim)}) for dim in dims]


def halved(of: tuple[int, ...], dim: int) -> tuple[int, ...]:
    extents = list(of)
    extents[dim] //= 2
    return tuple(extents)


CALLS = [
    call for of in ((2,), (4, 6), (2, 4, 6), (2, 1, 4, 2, 6)) for call in along_every_dimension(of)
]


def torch_gradient(tensors: dict[str, Any], dim: int) -> Any:
    return aten("glu_backward", *wide(*tensors.values()), dim)


SUBJECT = Subject(
    TABLE,
    # From the header [src:cann-headers]
    "const aclTensor* gradOut, const aclTensor* self, int64_t dim, const aclTensor* out",
    documented=(*WITH_BF16, ASCEND_910, ASCEND_310P),
    newer=f"{THREE} DOUBLE",
    older=f"{TWO} DOUBLE",
    attributes={"dim": -1},
    shapes={"self": (12, 18), "grad_out": (12, 9)},
    values={"self": between(-8, 8)},
    torch=aten_of(glu_backward, "glu_backward"),
    calls=CALLS,
)


def test_the_dimension_is_the_last_unless_it_is_given() -> None:
    tensors = sample((4, 6), -1, np.float32)
    found = LOCAL.run(glu_backward, **tensors)
    np.testing.assert_array_equal(found, LOCAL.run(glu_backward, **tensors, dim=1))


@pytest.mark.torch
def test_double_is_computed_in_double() -> None:
    tensors = sample((4, 6), 1)
    found = LOCAL.run(glu_backward, **tensors)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, torch_gradient(tensors, 1), rtol=1e-12)


@pytest.mark.parametrize("kind", [*FLOATS, np.float64], ids=title)
@pytest.mark.parametrize(("g", "value", "gate", "of_value", "of_gate"), CELLS)
def test_each_element_is_what_the_formula_says(
    kind: Any, g: float, value: float, gate: float, of_value: float, of_gate: float
) -> None:
    found = LOCAL.run(glu_backward, np.array([g], kind), np.array([value, gate], kind))
    np.testing.assert_array_equal(found.astype(np.float64), [of_value, of_gate])


def test_a_wide_open_gate_still_has_a_gradient() -> None:
    g, x = np.ones(1, np.float32), np.array([1, 50], np.float32)
    found = LOCAL.run(glu_backward, g, x)
    # e^-50 / (1 + e^-50)^2; 1 - sigmoid(50) would be 0 in float32
    np.testing.assert_allclose(found[1], 1.9287498479639178e-22, rtol=2**-21)


@pytest.mark.parametrize(("of", "dim"), [((0,), 0), ((0, 4), 1), ((4, 0), 0), ((4, 0), 1)])
def test_an_empty_input_gives_an_empty_output(of: tuple[int, ...], dim: int) -> None:
    found = LOCAL.run(glu_backward, **sample(of, dim, np.float16), dim=dim)
    assert (found.shape, found.dtype) == (of, np.float16)
