"""aclnnMatmul, aclnnMm and aclnnBatchMatMul [src:matmul]."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from npucall.dtypes import BF16, FLOAT, FLOAT16, INT32, DType
from npucall.errors import DTypeError, ShapeError
from npucall.tensors import Shape
from npucall_conformance.statements import _arithmetic as shared
from npucall_conformance.statements import _npu
from npucall_conformance.statements import _written as written
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.parts import (
    EVEN,
    SIGNS,
    Attributes,
    DTypes,
    In,
    Invalid,
    Out,
    Setup,
    halfway,
)
from npucall_conformance.stating.promotion import common_shape, promotion
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

PAIR = ("self", "mat2")
INNER, COLUMNS = 4, 5
NAN, INF = reals.NAN, reals.INFINITY
WITHOUT_FLOAT = ("Ascend910", "Ascend310P")
MIXED = ("Ascend950",)


def whole(k: Arguments) -> tuple[Any, Any]:
    """Both as matrices: a vector is one row, or one column."""
    first, second = k["self"], k["mat2"]
    return (
        first.reshape(1, -1) if first.ndim == 1 else first,
        second.reshape(-1, 1) if second.ndim == 1 else second,
    )


def shape(k: Arguments) -> Shape:
    first, second = k["self"].shape, k["mat2"].shape
    batch = common_shape(first[:-2], second[:-2]) or ()
    rows = first[-2:-1]
    return (*batch, *rows, *(second[-1:] if len(second) > 1 else ()))


def loops(k: Arguments) -> Any:
    first, second = whole(k)
    batch = common_shape(first.shape[:-2], second.shape[:-2]) or ()
    left = np.broadcast_to(first, (*batch, *first.shape[-2:]))
    right = np.broadcast_to(second, (*batch, *second.shape[-2:]))
    found = []
    for place in product(*map(range, batch)):
        rows, columns = left[place].tolist(), right[place].T.tolist()
        found += [
            reals.total([x * y for x, y in zip(row, column, strict=True)])
            for row in rows
            for column in columns
        ]
    return np.array(found, np.float64).reshape(shape(k))


def arrays(k: Arguments) -> Terms:
    first, second = whole(k)
    sums, sizes = first @ second, np.abs(first) @ np.abs(second)
    return Terms(sums.reshape(shape(k)), sizes.reshape(shape(k)))


def shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    """The base shape, its last extent being the inner one."""
    if not base:
        return {"self": (INNER,), "mat2": (INNER,)}
    columns = () if len(base) == 1 else (COLUMNS,)
    return {"self": base[-6:], "mat2": (base[-1], *columns)}


def kernel(dtypes: DTypes) -> DType:
    return promotion(*PAIR)(dtypes)


def lowered(dtypes: DTypes) -> DType:
    """FLOAT16 for FLOAT, which these products do not multiply."""
    found = kernel(dtypes)
    return FLOAT16 if found is FLOAT else found


def of(first: Shape, second: Shape, note: str) -> Setup:
    return Setup(note, shapes={"self": first, "mat2": second})


MATMUL = Statement(
    "aclnnMatmul",
    (In("self", normal()), In("mat2", normal())),
    (Out("out", shape, dtype=promotion(*PAIR)),),
    loops,
    arrays,
    prototype="const aclTensor* self, const aclTensor* mat2, aclTensor* out, int8_t cubeMathType",
    takes=FLOATS_EVERYWHERE,
    defaults={"cube_math_type": 0},
    defaulted=Setup(only=(FLOAT16, BF16)),  # 0 is not for FLOAT on products that do not multiply it
    attributes={"cube_math_type": (1,)},  # which every product takes for every dtype
    kernel=kernel,
    kernels=dict.fromkeys(WITHOUT_FLOAT, lowered),
    shapes=shapes,
    npu=_npu.matmul,
    torch=lambda k, torch: torch.matmul(k["self"], k["mat2"]),
    rank_shapes=((5,), (2, 1, 3), (2, 1, 3, 1), (2, 1, 1, 2, 1, 2), (1,) * 6),
    large_shape=(331, 307),
    large=(
        of((50_021, 2), (2, 3), "many-rows"),
        of((13, 8_009), (8_009, 11), "long-rows"),
        of((2, 3), (3, 50_021), "many-columns"),
        of((331, 307), (307, 311), "square"),
        of((251, 1, 19, 23), (3, 23, 11), "batch"),
        of((7, 16_033), (16_033, 9), "inner"),
        of((307,), (307, 331), "vector"),
    ),
    sized=lambda count: (max(count // 64, 1), 64),
    broadcast=(
        of((3,), (3,), "two-vectors"),
        of((2, 3), (3,), "a-vector-behind"),
        of((3,), (3, 4), "a-vector-before"),
        of((5, 2, 3), (3,), "many-and-a-vector"),
        of((3,), (5, 3, 4), "a-vector-and-many"),
        of((5, 2, 3), (5, 3, 4), "many"),
        of((2, 3), (5, 3, 4), "one-and-many"),
        of((2, 1, 2, 3), (4, 3, 5), "stretched"),
        of((1, 2, 1, 2, 2, 3), (2, 1, 1, 2, 3, 1), "six-dimensions"),
        of((2, 300), (300, 3), "long-sums"),
    ),
    mixed=(
        *(
            Setup(dtypes={**dict.fromkeys(PAIR, one), "out": other})
            for one in (FLOAT, FLOAT16, BF16)
            for other in (FLOAT, FLOAT16, BF16)
            if one is not FLOAT  # whose kernel a product may lower
        ),
        *(
            Setup(dtypes=dict(zip(PAIR, pair, strict=True)), products=MIXED)
            for pair in ((BF16, FLOAT), (FLOAT16, BF16), (FLOAT, FLOAT16))
        ),
    ),
    empty=(of((2, 0), (0, 3), "no-inner"), of((0,), (0,), "no-inner-of-vectors")),
    edges=(
        Setup(
            "special",
            values={
                "self": tuple((x, 1.0) for x in shared.EDGES),
                "mat2": ((1.0, 0.0, -2.0), (1.0, 0.0, 300.0)),
            },
        ),
        Setup(
            "beyond-float16",
            values={"self": ((300.0, -300.0),), "mat2": ((300.0,), (299.0,))},
        ),
    ),
    reductions=tuple(
        Setup(attributes={"cube_math_type": number}, products=("Ascend910B", "Ascend910_93"))
        for number in (0, 3, 4)
    ),
    halfway=halfway(
        {"self": tuple(zip(EVEN, SIGNS, strict=True)), "mat2": np.ones((2, 1))}, (len(EVEN), 2)
    ),
    written=written.MATMUL,
    invalid=(
        *defects.nulls(*PAIR, "out"),
        *defects.dtypes("self", found=INT32),
        *defects.dtypes("self"),
        *defects.dtypes("mat2", found=INT32),
        *defects.dtypes("mat2"),
        *defects.dtypes("out", found=INT32),
        *defects.dtypes("out"),
        *defects.no_bfloat16(*PAIR, "out"),
        *(
            Invalid(
                f"bfloat16-beside-float-{name}", {name: {"dtype": BF16}}, PAIR, DTypeError,
                products=("Ascend910B", "Ascend910_93"),
            )
            for name in PAIR
        ),
        *defects.values("cube_math_type", 5, -1),
        *defects.values("cube_math_type", 0, 3, products=WITHOUT_FLOAT),
        *(
            Invalid(
                f"rank-{len(found)}-{name}", {name: {"shape": found}}, (name,), ShapeError,
                block="rank",
            )
            for name in PAIR
            for found in ((), (1,) * 7)
        ),
        *defects.shapes("self", (3, 5), blames=PAIR),
        *defects.shapes("mat2", (5,), blames=PAIR),
        Invalid(
            "batches", {"self": {"shape": (2, 3, 4)}, "mat2": {"shape": (3, 4, 5)}}, PAIR,
            ShapeError,
        ),
        *defects.shapes("out", (5, 3), (1, 3, 5)),
        *defects.formats("self", "out"),
    ),
)  # fmt: skip


def _of_shapes(row: Invalid) -> bool:
    """Whether it is about shapes, or formats, which are looked at after them."""
    changes = (each for each in row.changes.values() if isinstance(each, dict))
    return any(each.keys() & {"shape", "format"} for each in changes)


def many(base: Shape, _: Attributes) -> dict[str, Shape]:
    return {"self": base, "mat2": (base[0], base[-1], COLUMNS)}


def ranks(name: str, *found: Shape) -> tuple[Invalid, ...]:
    """Another number of dimensions."""
    return tuple(
        Invalid(f"rank-{len(each)}-{name}", {name: {"shape": each}}, (name,), ShapeError,
                block="rank")
        for each in found
    )  # fmt: skip


OF_FACTORS = tuple(row for row in MATMUL.invalid if row.block == "invalid" and not _of_shapes(row))
MM = replace(
    MATMUL,
    operator="aclnnMm",
    npu="torch_npu calls it for mm, with what the suite does not know",
    torch=lambda k, torch: torch.mm(k["self"], k["mat2"]),
    base_shapes=((3, 4), (1, 17), (5, 1)),
    layout_shape=(3, 4),
    rank_shapes=((2, 1),),
    empty_shapes=((0, 3), (3, 0)),
    large=(of((50_021, 2), (2, 3), "many-rows"), of((13, 8_009), (8_009, 11), "long-rows")),
    broadcast=(of((2, 300), (300, 3), "long-sums"),),
    empty=(of((2, 0), (0, 3), "no-inner"),),
    written=(),
    invalid=(
        *defects.nulls("out", *PAIR),
        *OF_FACTORS[3:],
        *ranks("mat2", (4,), (2, 4, 5)),
        *ranks("self", (4,), (2, 3, 4)),
        *defects.shapes("mat2", (5, 5), blames=PAIR),
        *defects.shapes("self", (3, 5), blames=PAIR),
        *defects.shapes("out", (5, 3), (1, 3, 5)),
    ),
)

BATCH_MAT_MUL = replace(
    MATMUL,
    operator="aclnnBatchMatMul",
    shapes=many,
    npu="torch_npu calls it for bmm, with what the suite does not know",
    torch=lambda k, torch: torch.matmul(k["self"], k["mat2"]),
    base_shapes=((2, 3, 4), (3, 5, 7), (1, 2, 17), (4, 1, 1)),
    layout_shape=(2, 3, 4),
    rank_shapes=((2, 1, 3),),
    empty_shapes=((0, 2, 3), (2, 0, 3), (2, 3, 0)),
    large_shape=(3, 331, 307),
    large=(
        of((1, 50_021, 2), (1, 2, 3), "many-rows"),
        of((2, 13, 8_009), (2, 8_009, 11), "long-rows"),
        of((251, 19, 23), (1, 23, 11), "batch"),
    ),
    sized=lambda count: (2, max(count // 128, 1), 64),
    broadcast=(
        of((1, 2, 3), (5, 3, 4), "one-and-many"),
        of((5, 2, 3), (1, 3, 4), "many-and-one"),
        of((2, 2, 300), (2, 300, 3), "long-sums"),
    ),
    empty=(),
    edges=(
        Setup("special", values={
            "self": [[(x, 1.0) for x in shared.EDGES]],
            "mat2": [((1.0, 0.0, -2.0), (1.0, 0.0, 300.0))],
        }),
    ),
    halfway=(),
    written=(),
    invalid=(
        *OF_FACTORS,
        *ranks("self", (3, 4), (1, 2, 3, 4)),
        *ranks("mat2", (4, 5), (1, 2, 4, 5)),
        *ranks("out", (3, 5), (1, 2, 3, 5)),
        *defects.shapes("self", (2, 3, 5), blames=PAIR),
        *defects.shapes("mat2", (2, 5, 5), blames=PAIR),
        *defects.shapes("mat2", (3, 4, 5), blames=PAIR),
        *defects.shapes("out", (2, 5, 3), (1, 3, 5)),
        *defects.formats("self", "out"),
    ),
)  # fmt: skip
