"""aclnnMean [src:reduce-sum-mean]."""

from __future__ import annotations

from math import trunc
from typing import Any

import numpy as np

from npucall.dtypes import BF16, BOOL, COMPLEX64, DOUBLE, FLOAT, FLOAT16, INT32, INT64, UINT16
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
from npucall_conformance.stating.tables import ARITHMETIC, everywhere

OVER = ("dim", "keep_dim")


def loops(k: Arguments) -> Any:
    means = [reals.divide(reals.total(t), len(t)) for t in shared.lists(k, "dim")]
    if k.kernel.kind == "int":
        means = [float(trunc(mean)) for mean in means]
    return np.reshape(wide(means), shape(k))


def arrays(k: Arguments) -> Terms:
    terms = shared.sums(k, *OVER)
    count = np.float64(terms.summed)
    value = terms.value / count
    if k.kernel.kind == "int":
        return Terms(np.sign(value) * np.floor(np.abs(value)))
    return Terms(value, terms.sizes / count)


def shape(k: Arguments) -> Shape:
    return shared.out_shape(k, *OVER)


def torch_says(k: Arguments, torch: Any) -> Any:
    return torch.mean(k["self"], k["dim"], keepdim=k["keep_dim"])


MEAN = Statement(
    "aclnnMean",
    (In("self", uniform(-0.25, 1.25)),),
    (Out("out", shape, dtype=lambda dtypes: dtypes["dtype"]),),
    loops,
    arrays,
    prototype=(
        "const aclTensor* self, const aclIntArray* dim, bool keepDim, aclDataType dtype, "
        "aclTensor* out"
    ),
    takes=everywhere(*(each for each in ARITHMETIC if each is not BOOL)),
    defaults={"dim": (), "keep_dim": False, "dtype": FLOAT},
    attributes={"dim": shared.DIMS, "keep_dim": (False, True), "dtype": (FLOAT, FLOAT16)},
    kernel=lambda dtypes: dtypes["dtype"],
    npu=aten("mean.dim", "self", "dim", "keep_dim", dtype="dtype"),
    torch=torch_says,
    broadcast=(
        Setup("first-and-last", (3, 4, 5, 2), attributes={"dim": (0, -1)}),
        Setup("middle", (3, 4, 5), attributes={"dim": (1,)}),
        Setup("long-columns", (700, 3), attributes={"dim": (0,)}),
        Setup("long-rows", (3, 700), attributes={"dim": (1,)}),
        Setup("everything", (70, 90), attributes={"dim": (0, 1)}),
    ),
    large_shape=(1031, 1033),
    large=shared.large("dim"),
    mixed=(
        *(
            Setup(dtypes={"self": one, "out": out}, attributes={"dtype": other, "dim": (0,)})
            for one in (FLOAT, FLOAT16, BF16, DOUBLE)
            for other, out in ((FLOAT, FLOAT16), (FLOAT16, FLOAT), (BF16, DOUBLE), (DOUBLE, FLOAT))
        ),
        *(
            shared.of_dtype(dtype, *values, self=self, dim=())
            for dtype in (*arithmetic.INTEGERS, FLOAT)
            for self in arithmetic.INTEGERS
            for values in ((1.0, 2.0, 50.0), (7.0, 7.0, 7.0))
        ),
        shared.of_dtype(INT32, -3.0, -4.0, self=INT32, note="towards-0", dim=()),
        shared.of_dtype(FLOAT16, 2049.0, -2048.0, self=INT64, note="rounded-first", dim=()),
        Setup("complex", values={"self": (arithmetic.COMPLEX, arithmetic.OTHERS)},
              dtypes={"self": COMPLEX64}, attributes={"dtype": COMPLEX64, "dim": (0,)}),
    ),
    empty=(
        Setup("integers", (0, 3), attributes={"dtype": INT64, "dim": (0,)}, filled=0.0,
              dtypes={"self": INT32}),
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
            more={"only": (dtype,)}, dim=(1,), keep_dim=False, dtype=dtype,
        )
    ),
    empty_spares=("kept", "shape-out-"),
    written=written.MEAN,
    invalid=(
        *defects.nulls("self", "dim", "out"),
        *arithmetic.listed("self"),
        *defects.dtypes("self", found=BOOL),
        Invalid("dtype-uint16", {"dtype": UINT16}, ("dtype",), DTypeError),
        Invalid("dtype-bool", {"dtype": BOOL}, ("dtype",), DTypeError),
        *arithmetic.listed("out"),
        *defects.dtypes("out", found=BOOL),
        Invalid("dtype-int32", {"dtype": INT32}, ("dtype",), DTypeError),
        Invalid("complex-self", {"self": {"dtype": COMPLEX64}}, ("dtype",), DTypeError),
        *defects.uncastable("out"),
        *shared.wrong_dims("dim"),
        *defects.ranks("self", "out"),
        *shared.wrong_outputs(*OVER),
    ),
)  # fmt: skip
