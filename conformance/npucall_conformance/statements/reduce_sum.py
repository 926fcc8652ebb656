"""aclnnReduceSum [src:reduce-sum-mean]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import BF16, BOOL, COMPLEX64, DOUBLE, FLOAT, FLOAT16, INT8, INT32, INT64, UINT16
from npucall.errors import DTypeError
from npucall.tensors import Shape
from npucall_conformance.statements import _arithmetic as arithmetic
from npucall_conformance.statements import _reductions as shared
from npucall_conformance.statements import _written as written
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms, wide
from npucall_conformance.stating.domains import uniform
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import EVEN, SIGNS, In, Invalid, Out, Setup, halfway
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import ARITHMETIC_EVERYWHERE

OVER = ("dims", "keep_dims")


def loops(k: Arguments) -> Any:
    terms = shared.lists(k, "dims")
    totals = [float(any(t)) if k.kernel is BOOL else reals.total(t) for t in terms]
    return np.reshape(wide(totals), shape(k))


def arrays(k: Arguments) -> Terms:
    terms = shared.sums(k, *OVER)
    return Terms(np.minimum(terms.value, 1.0)) if k.kernel is BOOL else terms


def shape(k: Arguments) -> Shape:
    return shared.out_shape(k, *OVER)


def torch_says(k: Arguments, torch: Any) -> Any:
    return torch.sum(k["self"], k["dims"], keepdim=k["keep_dims"])


def whole(*dtypes: Any) -> tuple[Setup, ...]:
    """Numbers that every dtype has, and their sums too."""
    return tuple(
        shared.of_dtype(dtype, 0.0, 1.0, 2.0, 50.0, self=self, dims=())
        for dtype in dtypes
        for self in dtypes
    )


REDUCE_SUM = Statement(
    "aclnnReduceSum",
    (In("self", uniform(-0.25, 1.25)),),
    (Out("out", shape, dtype=lambda dtypes: dtypes["dtype"]),),
    loops,
    arrays,
    prototype=(
        "const aclTensor* self, const aclIntArray* dims, bool keepDims, aclDataType dtype, "
        "aclTensor* out"
    ),
    takes=ARITHMETIC_EVERYWHERE,
    defaults={"dims": (), "keep_dims": False, "dtype": FLOAT},
    attributes={
        "dims": shared.DIMS, "keep_dims": (False, True), "dtype": (FLOAT, FLOAT16),
    },
    kernel=lambda dtypes: dtypes["dtype"],
    npu=aten("sum.dim_IntList", "self", "dims", "keep_dims", dtype="dtype"),
    torch=torch_says,
    broadcast=(
        Setup("first-and-last", (3, 4, 5, 2), attributes={"dims": (0, -1)}),
        Setup("middle", (3, 4, 5), attributes={"dims": (1,)}),
        Setup("long-columns", (700, 3), attributes={"dims": (0,)}),
        Setup("long-rows", (3, 700), attributes={"dims": (1,)}),
        Setup("everything", (70, 90), attributes={"dims": (0, 1)}),
    ),
    large_shape=(1031, 1033),
    large=shared.large("dims"),
    mixed=(
        *(
            Setup(dtypes={"self": one}, attributes={"dtype": other, "dims": (0,)})
            for one in (FLOAT, FLOAT16, BF16, DOUBLE)
            for other in (FLOAT, FLOAT16, BF16, DOUBLE)
        ),
        *whole(*arithmetic.INTEGERS, BOOL),
        *(
            Setup("any-byte", (10,), dtypes={"self": BOOL}, raw={"self": arithmetic.ANY_BYTE},
                  attributes={"dtype": dtype, "dims": ()}, telling=True)
            for dtype in (FLOAT, INT64)
        ),
        shared.of_dtype(INT32, 0.75, 1.5, -2.75, note="converted-first", dims=()),
        shared.of_dtype(FLOAT16, 2049.0, -2048.0, self=INT64, note="rounded-first", dims=()),
        Setup("complex", values={"self": (arithmetic.COMPLEX, arithmetic.OTHERS)},
              dtypes={"self": COMPLEX64}, attributes={"dtype": COMPLEX64, "dims": (0,)}),
    ),
    empty=(
        Setup("integers", (0, 3), attributes={"dtype": INT64, "dims": (0,)}),
        Setup("truth", (0, 3), attributes={"dtype": BOOL, "dims": (0,)}),
    ),
    edges=(
        Setup("pairs", values={"self": shared.EDGES}, base=(len(shared.EDGES), 2)),
        Setup("beyond", values={"self": ((6e4, 6e4), (6e4, -6e4))}, base=(2, 2)),
    ),
    halfway=tuple(
        each
        for dtype in (FLOAT16, BF16)
        for each in halfway(
            {"self": tuple(zip(EVEN, SIGNS, strict=True))}, (len(EVEN), 2),
            more={"only": (dtype,)}, dims=(1,), keep_dims=False, dtype=dtype,
        )
    ),
    empty_spares=("kept", "shape-out-"),
    written=written.REDUCE_SUM,
    invalid=(
        *defects.nulls("self", "dims", "out"),
        *arithmetic.listed("self", "out"),
        Invalid("dtype-uint16", {"dtype": UINT16}, ("dtype",), DTypeError),
        *defects.dtypes("out", found=INT8),
        *defects.ranks("self"),
        *shared.wrong_dims("dims"),
        *shared.wrong_outputs(*OVER),
    ),
)  # fmt: skip
