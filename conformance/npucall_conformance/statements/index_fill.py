"""aclnnIndexFill and aclnnIndexFillTensor [src:indexing]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.declare.parameters import Scalar
from npucall.dtypes import (
    BOOL,
    COMPLEX64,
    DOUBLE,
    FLOAT16,
    FLOATS,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
)
from npucall.errors import DTypeError
from npucall.tensors import Shape
from npucall_conformance.statements import _indexing as shared
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.in_places import in_place
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import BEFORE_950, Statement
from npucall_conformance.stating.tables import on
from npucall_conformance.stating.written import WrittenCall, of

FEW = (*FLOATS, INT32, INT64, BOOL)
TAKES = {
    **on(("Ascend910B", "Ascend910_93"), *FEW),
    **on(("Ascend950",), *FEW, INT8, UINT8, INT16, DOUBLE),
}


def named(k: Arguments) -> list[int]:
    """The places, all of them positive, and none beyond the last."""
    count = shared.extent(k["self"].shape, k["dim"])
    places = np.asarray(k["index"]).reshape(-1).tolist()
    return [int(i) % count for i in places if -count <= i < count]


def loops(k: Arguments) -> Any:
    axis, places = shared.axis_of(k), set(named(k)) if k["self"].size else set()
    rows = np.moveaxis(shared.as_rows(k["self"]), axis, 0).copy()
    for number in places:
        rows[number] = k["value"]
    return np.moveaxis(rows, 0, axis).reshape(k["self"].shape)


def arrays(k: Arguments) -> Terms:
    out = np.array(shared.as_rows(k["self"]), np.float64)
    if out.size:
        before: tuple[Any, ...] = (slice(None),) * shared.axis_of(k)
        out[(*before, np.array(named(k), np.int64))] = k["value"]
    return Terms(out.reshape(k["self"].shape))


def torch_says(k: Arguments, torch: Any) -> Any:
    places = torch.tensor(named(k) if k["self"].numel() else [], dtype=torch.int64)
    return torch.index_fill(k["self"], k["dim"], places, k["value"])


def shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    return {"self": base, "index": (2,)}


COMMON: dict[str, Any] = {
    "takes": TAKES,
    "legacy": (),
    "in_kernel": ("value",),
    "outputs": (Out("out", "self", "self"),),
    "loops": loops,
    "arrays": arrays,
    "kernel": dtype_of("self"),
    "dtypes": (*FLOATS, DOUBLE),
    "cost": 0.0,
    "torch": torch_says,
}


def refused(of_self: tuple[Invalid, ...], *index: Invalid) -> tuple[Invalid, ...]:
    return (
        *defects.nulls("self", "index", "value", "out"),
        *defects.dtypes("self", found=UINT16),
        *defects.dtypes("self", found=INT8, products=BEFORE_950),
        *defects.dtypes("out", found=FLOAT16),
        *index,
        *of_self,
        Invalid("complex-value", {"value": Scalar(COMPLEX64, 1)}, ("value",), DTypeError),
    )


RANK, SHAPES = defects.ranks("self"), defects.shapes("out", (4, 3), (12,))
INDEX_FILL = Statement(
    "aclnnIndexFill",
    prototype=(
        "const aclTensor* self, int64_t dim, const aclTensor* index, const aclScalar* value, "
        "aclTensor* out"
    ),
    inputs=(In("self", normal()), shared.index(shared.places(1, 2))),
    shapes=shapes,
    attributes={"dim": shared.DIMS, "value": (2.5, -0.1)},
    npu="torch_npu calls it for index_fill with a tensor, which refuses what is no place",
    **COMMON,
    edges=(
        Setup("no-index", (2, 3), shapes={"index": (0,)}, attributes={"dim": 0}),
        Setup("planes", (3, 4), shapes={"index": (2, 2)}, attributes={"dim": 1}),
    ),
    written=(
        WrittenCall("integers", {"self": of(INT64, 2**62 + 1, 5), "index": of(INT32, 1, -2, 9)},
                    (of(INT64, 2**53 + 1, 2**53 + 1),), {"dim": 0, "value": 2**53 + 1}),
        WrittenCall("truth", {"self": of(BOOL, 0, 1), "index": of(INT64, 0)},
                    (of(BOOL, 1, 1),), {"dim": 0, "value": 3}),
    ),
    invalid=refused((*RANK, *SHAPES, *defects.values("dim", 2, -3)), *shared.refused_index()),
    empty_spares=("rank-9", "shape-out", "dim-"),
)  # fmt: skip
INDEX_FILL_TENSOR = Statement(
    "aclnnIndexFillTensor",
    prototype=(
        "const aclTensor* self, int64_t dim, const aclIntArray* index, const aclScalar* value, "
        "aclTensor* out"
    ),
    inputs=(In("self", normal()),),
    attributes={"dim": shared.DIMS, "index": ((0,), (-1, 0), ()), "value": (2.5, -0.1)},
    npu="torch_npu calls it for index_fill with a tensor of places, which it copies to the host",
    **COMMON,
    written=(
        WrittenCall("integers", {"self": of(INT32, 7, 5, 3)}, (of(INT32, -2, 5, -2),),
                    {"dim": 0, "index": (0, -1), "value": -2}),
    ),
    invalid=refused((
        *SHAPES, shared.nine("self", "out"), *defects.values("dim", 2, -3),
        *defects.values("index", (3,), (0, -4)),
    )),
    empty_spares=("rank-9", "shape-out", "dim-", "index-"),
)  # fmt: skip
INPLACE_INDEX_FILL = in_place(INDEX_FILL)
INPLACE_INDEX_FILL_TENSOR = in_place(INDEX_FILL_TENSOR)
