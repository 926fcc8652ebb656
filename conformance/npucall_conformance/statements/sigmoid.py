"""aclnnSigmoid [src:sigmoid]; complex numbers are not drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import (
    BF16,
    BOOL,
    COMPLEX64,
    DOUBLE,
    FLOAT,
    FLOAT16,
    FLOATS,
    INT8,
    INT32,
    INT64,
    UINT8,
    UINT16,
    DType,
)
from npucall.errors import DTypeError
from npucall_conformance.statements import _activations as shared
from npucall_conformance.statements import _written as written
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.in_places import in_place
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import (
    PAIRS_OF_FLOATS,
    Contradiction,
    DTypes,
    Invalid,
    Out,
    Refusal,
    Setup,
)
from npucall_conformance.stating.tables import FRACTIONAL, INTEGERS, everywhere


def kernel(dtypes: DTypes) -> DType:
    """Integers are converted to the dtype of the output."""
    if dtypes["self"].kind in ("int", "bool"):
        return dtypes.get("out", FLOAT)
    return dtypes["self"]


def scalar(_: Arguments, x: float) -> float:
    return reals.sigmoid(x)


def vector(_: Arguments, x: Any) -> Any:
    return np.exp(-np.logaddexp(0.0, -x))


SIGMOID = elementwise(
    "aclnnSigmoid",
    prototype="const aclTensor* self, aclTensor* out",
    takes=everywhere(*FRACTIONAL, *INTEGERS, BOOL),
    inputs=(shared.numbers(3.0),),
    output=Out("out", shape="self", dtype=shared.float_of),
    scalar=scalar,
    vector=vector,
    dtypes=(*FLOATS, DOUBLE),
    kernel=kernel,
    npu=aten("sigmoid", "self"),
    torch=lambda k, torch: torch.sigmoid(k["self"]),
    mixed=(
        *shared.converted(*PAIRS_OF_FLOATS, *shared.WIDER, (BF16, DOUBLE), (DOUBLE, FLOAT16)),
        *map(shared.whole, (*shared.SMALL_INTEGERS, BOOL)),
        *(
            shared.whole(one, out)
            for one in (INT8, INT64, UINT8, BOOL)
            for out in (FLOAT16, BF16, DOUBLE)
        ),
        Setup("any-byte", (10,), dtypes={"self": BOOL}, raw={"self": b"\x00\x02\x01\xff"}),
        shared.whole(INT64, FLOAT16, more=(2049, -2049, 2**40)),
    ),
    edges=(shared.edges(-88.0, -95.0, 88.0, 95.0, -740.0),),
    empty_before="real-out-of-complex",
    written=written.SIGMOID,
    invalid=(
        *defects.nulls("self", "out"),
        *defects.dtypes("self", found=UINT16),
        *defects.dtypes("out", found=INT32),
        *defects.dtypes("out", found=BOOL),
        *defects.no_bfloat16("self", "out"),
        *shared.shapes_of("self"),
        *shared.too_many_dimensions(),
        # What follows is the service's.
        Invalid("real-out-of-complex", {"self": {"dtype": COMPLEX64}}, ("out",), DTypeError),
    ),
    contradictions=(
        Contradiction(
            "F12", "integers", Setup(dtypes={"self": INT32}),
            {"page": Refusal(), "source": ...}, "source",
        ),
    ),
)  # fmt: skip
INPLACE_SIGMOID = in_place(SIGMOID)
