"""aclnnHardswishBackward and its V2: prototypes, values, and their checks in order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npucall.dtypes import BF16, DOUBLE, FLOAT16
from npucall.errors import DTypeError, ShapeError
from npucall.operators.hardswish_backward import hardswish_backward
from npucall.operators.hardswish_backward_v2 import hardswish_backward_v2
from npucall.products import ASCEND_910

from .faults import NINE, Fault, Table, dtype, null, shape
from .gradients import FLOATS, INF, LOCAL, NAN, title
from .subject import WITH_BF16, Cells, Subject, aten_of, steps


def table(operator: Any, *listed: str) -> Table:
    """The checks, in order [src:hardswish]; the two differ in the order of the dtypes' list."""
    return Table(
        operator,
        {},
        [
            *null("grad_output", "self", "out"),
            *dtype(DOUBLE, *listed),
            *dtype(FLOAT16, "grad_output"),
            Fault({"self": {"dtype": BF16}}, DTypeError, ("grad_output",)),
            *dtype(FLOAT16, "out"),
            *shape(NINE, "grad_output", "self"),
            *shape((3, 2), "grad_output"),
            Fault({"self": {"shape": (1, 3)}}, ShapeError, ("grad_output",)),
            *shape((3, 2), "out"),
        ],
    )


# self, grad_output, result, result of V2
CELLS = [
    (-4.0, 2.0, 0.0, 0.0),
    (-3.0, 2.0, -1.0, 0.0),  # 2 * (-3 / 3 + 0.5)
    (-1.5, 2.0, 0.0, 0.0),
    (-0.0, 2.0, 1.0, 1.0),
    (0.75, 2.0, 1.5, 1.5),  # 2 * (0.75 / 3 + 0.5)
    (1.5, 2.0, 2.0, 2.0),
    (3.0, 2.0, 3.0, 2.0),  # 2 * (3 / 3 + 0.5)
    (4.0, 2.0, 2.0, 2.0),
    (INF, 2.0, 2.0, 2.0),
    (-INF, 2.0, 0.0, 0.0),
    (NAN, 2.0, 2.0, 2.0),
    (0.75, INF, INF, INF),
    (-4.0, INF, NAN, 0.0),  # multiplied by 0; chosen
    (-4.0, NAN, NAN, 0.0),
    (4.0, NAN, NAN, NAN),
    (-1.5, INF, NAN, NAN),
]


def terms(tensors: dict[str, Any], *_: Any) -> Any:
    """The size of what the formula adds up, where it may cancel."""
    return np.abs(tensors["grad_output"]) * (1 + np.abs(tensors["self"]))


SUBJECT = Subject(
    table(hardswish_backward, "self", "grad_output"),
    # From the header [src:cann-headers]
    "const aclTensor* gradOutput, const aclTensor* self, aclTensor* out",
    documented=(*WITH_BF16, ASCEND_910),
    values={"self": steps(255, apart_from=3)},  # where the first version is not torch's
    cells=Cells("self grad_output", [row[:3] for row in CELLS]),
    torch=aten_of(hardswish_backward, "hardswish_backward"),
    noise=terms,
)
SUBJECT_V2 = replace(
    SUBJECT,
    table=table(hardswish_backward_v2, "grad_output", "self"),
    cells=Cells("self grad_output", [(*row[:2], row[3]) for row in CELLS]),
    torch=aten_of(hardswish_backward_v2, "hardswish_backward"),
)


@pytest.mark.parametrize("kind", FLOATS, ids=title)
def test_next_to_the_ends_both_versions_are_one(kind: Any) -> None:
    three = np.array([3], kind)
    step = np.array([-1, 1], np.int16 if three.itemsize == 2 else np.int32)
    beside = (three.view(step.dtype) + step).view(kind)  # the neighbours of 3
    x = np.concatenate([beside, -beside])
    first, second = (
        LOCAL.run(operator, np.ones_like(x), x).tolist()
        for operator in (hardswish_backward, hardswish_backward_v2)
    )
    assert first == second
    assert first == [pytest.approx(1.5, rel=2**-7), 1, pytest.approx(-0.5, rel=2**-5), 0]
